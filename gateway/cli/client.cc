#include "gateway/cli/client.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/output.h"
#include "lib/fd.h"
#include "lib/json.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string state_dir_of(const ClientOptions& options) {
  if (!options.state_dir.empty()) return options.state_dir;
  const std::string named = environment("ISOGATE_STATE_DIR");
  return named.empty() ? default_state_dir(process_environment()) : named;
}

Result<std::string> read_key(const std::string& path, bool must_be_there) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file && !must_be_there) return std::string();
  const std::string attempt = "cannot read the key file `" + path + "`";
  if (!file) return os_error(attempt, errno);
  auto key = read_to_end(file.get(), size_t{64} << 10, attempt);
  while (key && (key->ends_with('\n') || key->ends_with('\r'))) key->pop_back();
  return key;
}

// A key ends up in a header line.
Result<std::string> checked(std::string key, const std::string& origin) {
  for (unsigned char c : key)
    if (c <= 0x20 || c >= 0x7f) return invalid("the key of " + origin + " holds characters that no key has");
  if (key.empty()) return invalid("the key of " + origin + " is empty");
  return key;
}

Result<std::string> find_key(const ClientOptions& options, const Endpoint& endpoint, bool named) {
  if (!options.key_file.empty()) {
    auto key = read_key(options.key_file, true);
    return key.ok() ? checked(*key, "`" + options.key_file + "`") : key;
  }
  if (std::string key = environment("ISOGATE_KEY"); !key.empty()) return checked(key, "ISOGATE_KEY");
  // The socket knows its peer. What lies in local.key may be left from before keys were configured. And who
  // listens on a port that nobody named may be anybody.
  if (!named || !endpoint.on_this_machine() || !endpoint.unix_path.empty()) return std::string();
  if (!endpoint.cert_file.empty()) return std::string();  // it stands for somebody itself
  std::string path = state_dir_of(options) + "/local.key";
  auto key = read_key(path, false);
  return key.ok() && !key->empty() ? checked(*key, "`" + path + "`") : key;
}

Result<HttpClient> client_of(const ClientOptions& options, const Endpoint& endpoint, bool named) {
  auto key = find_key(options, endpoint, named);
  if (!key.ok()) return key.error();
  return HttpClient(endpoint, *key);
}

std::string named_url(const ClientOptions& options) {
  return options.url.empty() ? environment("ISOGATE_URL") : options.url;
}

bool names_state_dir(const ClientOptions& options) {
  return !options.state_dir.empty() || !environment("ISOGATE_STATE_DIR").empty();
}

bool is_there(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 || errno != ENOENT;
}

Result<HttpClient> over_socket(const ClientOptions& options) {
  const Endpoint endpoint{"", 0, state_dir_of(options) + "/isogate.sock"};
  if (const int error = socket_error(endpoint.unix_path); error != 0) {
    Error failure = os_error("cannot reach a gateway at `" + endpoint.unix_path + "`", error);
    failure.status = ISOGATE_UNAVAILABLE;
    return failure;
  }
  return client_of(options, endpoint, false);
}

const char* advice_for(const std::string& code) {
  static const std::pair<const char*, const char*> kAdvice[] = {
      {"already_attached", "`isogate attach --read-only ID` shows its output meanwhile."},
      {"backend_unavailable", "`isogate probe` shows each backend and why it is or is not chosen."},
      {"draining", "The gateway is ending; try again when it is back."},
      {"exec_ended", "`isogate logs ID` shows what it printed."},
      {"exec_not_found", "`isogate ps` lists them."},
      {"is_directory", "`isogate ls PATH` shows what is in it."},
      {"outcome_unknown", "The program may have run, completely or in part: check before you run it again."},
      {"permission_denied",
       "The sandbox may not do that, or the configuration does not allow it to this tenant or key."},
      {"rate_limited", "Try again in a moment."},
      {"sandbox_not_found", "`isogate sandbox ls`, or `ls --orphans`, lists them."},
      {"sandbox_lost", "Its workspace is lost. Run `isogate sandbox rm AGENT` to start with an empty one."},
      {"unauthenticated",
       "Set ISOGATE_KEY or give --key-file; on the gateway's own machine its user and root\n"
       "  find <state-dir>/local.key by themselves (--state-dir)."},
  };
  for (const auto& [name, advice] : kAdvice)
    if (code == name) return advice;
  return nullptr;
}

const char* code_of(const Error& error) {
  switch (error.status) {
    case ISOGATE_UNAVAILABLE:
      return "gateway_unreachable";
    case ISOGATE_LOST:
      return "contact_lost";
    case ISOGATE_INVALID_ARGUMENT:
      return "invalid_request";
    default:
      return "client_error";
  }
}

void print_error_object(const Json& object) {
  [[maybe_unused]] auto ignored =
      write_all(2, object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

bool is_error_object(const Json& object) { return member(member(object, "error"), "code").is_string(); }

void print_explanation(const Explanation& why) {
  complain(why.message);
  if (!why.advice.empty()) advise(why.advice);
}

}  // namespace

Result<std::optional<HttpClient>> find_running_gateway(const ClientOptions& options) {
  if (named_url(options).empty() && !names_state_dir(options) && !is_there(state_dir_of(options)))
    return std::optional<HttpClient>();
  auto client = named_url(options).empty() ? over_socket(options) : find_gateway(options);
  if (!client.ok()) return client.error();
  return std::optional<HttpClient>(*client);
}

Result<HttpClient> find_gateway(const ClientOptions& options) {
  if (const std::string url = named_url(options); !url.empty()) {
    auto endpoint = parse_url(url);
    if (!endpoint.ok()) return endpoint.error();
    const auto file = [](const std::string& given, const char* variable) {
      return given.empty() ? environment(variable) : given;
    };
    endpoint->ca_file = file(options.ca_file, "ISOGATE_CA_FILE");
    if (endpoint->tls) endpoint->cert_file = file(options.cert_file, "ISOGATE_CERT_FILE");
    if (endpoint->tls) endpoint->cert_key_file = file(options.cert_key_file, "ISOGATE_CERT_KEY_FILE");
    if (endpoint->cert_file.empty() && !endpoint->cert_key_file.empty())
      return invalid("a client key without its certificate: give --cert or ISOGATE_CERT_FILE, too");
    if (endpoint->cert_key_file.empty()) endpoint->cert_key_file = endpoint->cert_file;
    if (auto usable = check_files(*endpoint); !usable) return usable.error();
    return client_of(options, *endpoint, true);
  }
  if (auto client = over_socket(options); client.ok() || names_state_dir(options)) return client;
  return client_of(options, Endpoint{"127.0.0.1", 9090, ""}, false);
}

Asked ask(HttpClient& client, const HttpRequest& request, bool json) {
  auto answer = client.call(request);
  if (!answer.ok()) return {report(answer.error(), json), {}};
  return {answer->ok() ? kDone : report_refusal(*answer, json), std::move(*answer)};
}

Asked ask(const ClientOptions& options, const HttpRequest& request) {
  auto client = find_gateway(options);
  return client.ok() ? ask(*client, request, options.json) : Asked{report(client.error(), options.json), {}};
}

int ask_and_show(const ClientOptions& options, const HttpRequest& request,
                 const std::function<int(const std::string& body)>& show) {
  const auto [failed, answer] = ask(options, request);
  if (failed != kDone) return failed;
  if (!options.json) return show(answer.body);
  print(answer.body);
  return kDone;
}

int makes_no_sense(const std::exception& error) {
  complain(std::string("the gateway's response is invalid: ") + error.what());
  return kGateway;
}

std::string Explanation::in_one_line() const {
  std::string line = message + (advice.empty() ? "" : ". " + advice);
  for (size_t at; (at = line.find("\n  ")) != std::string::npos;) line.replace(at, 3, " ");
  return line;
}

Explanation explain(const Error& error) {
  Explanation why{error.message};
  if (error.status == ISOGATE_UNAVAILABLE && error.os_errno == EACCES)
    why.advice =
        "Its user and root may; others come by TCP with a key: --url or ISOGATE_URL, and ISOGATE_KEY.";
  else if (error.status == ISOGATE_UNAVAILABLE && error.os_errno == EPROTO)
    why.advice = "TLS failed: see --url, --ca-file and --cert.";
  else if (error.status == ISOGATE_UNAVAILABLE)
    why.advice =
        "Start one with `isogate serve`, or name it: --url or ISOGATE_URL, or its state directory with\n"
        "  --state-dir or ISOGATE_STATE_DIR.";
  else if (error.status == ISOGATE_LOST)
    why.advice = "What became of the call is not known: look before you repeat it.";
  return why;
}

Explanation explain(const HttpAnswer& refusal) {
  const Json object = Json::parse(refusal.body, nullptr, false);
  if (!is_error_object(object))
    return {
        "status " + std::to_string(refusal.status) + " without an error object: is this an isogate gateway?",
        "See --url and ISOGATE_URL."};
  const Json& error = object["error"];
  const std::string code = text_at(error, "code");
  std::string message = text_at(error, "message");
  if (message.empty()) message = code;
  Explanation why{message + " (" + code + ")", "", true};
  if (code == "unauthenticated" && refusal.key_over_socket)
    why.advice =
        "Over its Unix socket the gateway's user and root need no key: unset ISOGATE_KEY, leave --key-file "
        "out.";
  else if (const char* advice = advice_for(code))
    why.advice = advice;
  if (!refusal.retry_after.empty())
    why.advice += (why.advice.empty() ? "" : "\n  ") + ("Retry after " + refusal.retry_after + " s.");
  return why;
}

int report(const Error& error, bool json) {
  int exit_code = error.status == ISOGATE_INVALID_ARGUMENT ? kUsage : kGateway;
  if (json) {
    print_error_object({{"error",
                         {{"code", code_of(error)},
                          {"message", error.message},
                          {"retryable", error.status == ISOGATE_UNAVAILABLE},
                          {"details", Json::object()}}},
                        {"request_id", ""}});
    return exit_code;
  }
  print_explanation(explain(error));
  return exit_code;
}

int report_local(const Error& error, bool json) {
  const int exit_code = report(error, json);
  return error.status == ISOGATE_UNAVAILABLE || error.status == ISOGATE_LOST ? exit_code : kFailed;
}

int report_refusal(const HttpAnswer& answer, bool json) {
  const Explanation why = explain(answer);
  if (json && why.refused)
    print_error_object(Json::parse(answer.body));
  else
    print_explanation(why);
  return why.refused ? kFailed : kGateway;
}

Query& Query::add(const char* name, const std::string& value) {
  if (!value.empty()) text_ += (text_.empty() ? "?" : "&") + std::string(name) + "=" + percent_encode(value);
  return *this;
}

int check_agent(const nlohmann::json& exec, const std::string& agent) {
  const std::string own = exec.value("agent_id", "");
  if (agent.empty() || agent == own) return kDone;
  complain("the exec is of agent `" + own + "`, not of `" + agent + "`");
  return kFailed;
}

HttpRequest post(std::string target, const nlohmann::ordered_json& body) {
  return {.method = "POST",
          .target = std::move(target),
          .content_type = "application/json",
          .body = body.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace)};
}

nlohmann::ordered_json file_body(const FileOptions& options) {
  nlohmann::ordered_json body = {{"path", options.path.empty() ? "." : options.path}};
  if (!options.agent.empty()) body["agent_id"] = options.agent;
  if (!options.scope.empty()) body["scope"] = options.scope;
  if (!options.user.empty()) body["user"] = options.user;
  return body;
}

std::string raw_target(const FileOptions& options, Query query) {
  const std::string agent = options.agent.empty() ? "default" : options.agent;
  return "/workspace/files/" + percent_encode(agent) + "/" + escape_path(options.path) +
         query.add("scope", options.scope).add("user", options.user).text();
}

}  // namespace isogate::cli
