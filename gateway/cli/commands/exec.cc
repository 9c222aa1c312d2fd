#include "gateway/cli/commands/exec.h"

#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/output.h"
#include "gateway/cli/terminal.h"
#include "lib/fd.h"
#include "lib/json.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxStdinBytes = 64u << 20;
constexpr int kAccepted = 202;             // it runs on
constexpr double kLongestExecSec = 86400;  // without --timeout the gateway's own default holds

Result<std::string> read_stdin() {
  auto all = read_to_end(0, kMaxStdinBytes, "cannot read stdin");
  if (!all && all.error().os_errno == EFBIG)
    return invalid("stdin is over 64 MiB: store it with `isogate write` and read the file in the command");
  return all;
}

Result<void> add_env(const ExecOptions& options, Json& body) {
  for (const std::string& pair : options.env) {
    size_t equals = pair.find('=');
    if (equals == std::string::npos || equals == 0) return invalid("--env `" + pair + "` is not NAME=VALUE");
    body["env"][pair.substr(0, equals)] = pair.substr(equals + 1);
  }
  return {};
}

Result<void> add_stdin(const ExecOptions& options, Json& body) {
  if (!options.read_stdin) return {};
  auto bytes = read_stdin();
  if (!bytes.ok()) return bytes.error();
  const bool text = is_utf8(*bytes) && bytes->find('\0') == std::string::npos;  // which no text may hold
  body["stdin"] = text ? *bytes : base64_encode(*bytes);
  body["stdin_encoding"] = text ? "utf-8" : "base64";
  return {};
}

void add_optional(Json& body, const char* name, const std::string& value) {
  if (!value.empty()) body[name] = value;
}

template <typename T>
void add_optional(Json& body, const char* name, const std::optional<T>& value) {
  if (value) body[name] = *value;
}

void add_long_lived(const ExecOptions& options, Json& body) {
  if (!options.long_lived()) return;
  body["background"] = true;
  if (options.interactive) body["stdin_open"] = true;
  if (!options.tty) return;
  const TerminalSize size = terminal_size();
  body["pty"] = {{"cols", size.cols}, {"rows", size.rows}};
}

Result<std::string> request_body(const ExecOptions& options) {
  Json body = Json::object(), cgroup = Json::object();
  if (options.argv.empty())
    body["command"] = options.command;
  else
    body["argv"] = options.argv;
  add_optional(body, "agent_id", options.agent);
  add_optional(body, "timeout_sec", options.timeout_sec);
  add_optional(body, "max_output_bytes", options.max_output_bytes);
  add_optional(body, "cwd", options.cwd);
  add_optional(body, "user", options.user);
  add_optional(body, "artifact_dir", options.artifact_dir);
  add_optional(body, "backend", options.backend);
  add_optional(body, "min_isolation", options.min_isolation);
  for (size_t row = 0; row < kLimitKindCount; ++row)
    add_optional(cgroup, kLimitKinds[row].setting, options.limits[row]);
  if (!cgroup.empty()) body["cgroup"] = cgroup;
  if (options.lines) body["lines"] = true;
  add_long_lived(options, body);
  if (auto added = add_env(options, body); !added.ok()) return added.error();
  if (auto added = add_stdin(options, body); !added.ok()) return added.error();
  try {
    return body.dump();
  } catch (const Json::exception&) {
    return invalid(
        "an argument is not UTF-8, and the contract carries text: use --stdin or a file for bytes");
  }
}

// Its exit code could be the program's own, so any other ending is reported.
void tell_what_ended_it(const ExecEnd& end) {
  char after[40] = "";
  if (end.duration_sec)
    std::snprintf(after, sizeof after, *end.duration_sec < 10 ? " after %.2f s" : " after %.0f s",
                  *end.duration_sec);
  if (end.outcome == "timed_out") complain(std::string("timed out") + after);
  if (end.outcome == "oom_killed") complain(std::string("out of memory, and killed") + after);
  if (end.outcome == "killed") complain(std::string("ended by the gateway") + after);
}

Result<void> show_output(const Json& answer, const char* name, int fd) {
  const Json& text = member(answer, name);
  if (!text.is_string()) return Error{ISOGATE_LOST, 0, "the gateway's answer has no " + std::string(name)};
  if (text_at(answer, (std::string(name) + "_encoding").c_str()) == "base64") {
    auto bytes = from_base64(text.get_ref<const std::string&>());
    return bytes.ok() ? write_all(fd, *bytes) : Result<void>(bytes.error());
  }
  return write_all(fd, text.get_ref<const std::string&>());
}

Result<void> show_outputs(const Json& answer) {
  auto out = show_output(answer, "stdout", 1);
  return out.ok() ? show_output(answer, "stderr", 2) : out;
}

// Once it was asked, no failure looks like a code of the program or of the command line.
int failed(const Error& error, bool json) {
  report(error, json);
  return kGateway;
}

// A refusal of an exec is never the program's own exit code; its output until then is shown.
int refused(const HttpAnswer& answer, bool json) {
  const Json body = Json::parse(answer.body, nullptr, false);
  const Json& details = member(member(body, "error"), "details");
  if (!json && details.contains("stdout"))
    if (auto shown = show_outputs(details); !shown.ok()) complain(shown.error().message);
  report_refusal(answer, json);
  return kGateway;
}

Result<HttpRequest> exec_request(const ExecOptions& options) {
  auto body = request_body(options);
  if (!body.ok()) return body.error();
  HttpRequest request;
  request.method = "POST";
  request.target = options.stream ? "/exec-stream" : "/exec";
  request.content_type = "application/json";
  request.body = *body;
  request.wait_sec = kAnswerSec + (options.long_lived() ? 0 : options.timeout_sec.value_or(kLongestExecSec));
  return request;
}

// A result with the output.
int show_result(const HttpAnswer& answer, bool json) {
  Json body = Json::parse(answer.body, nullptr, false);
  auto end = parse_exec_end(answer.body);
  if (!end.ok()) return failed(end.error(), json);
  auto shown =
      json ? write_all(1, answer.body.back() == '\n' ? answer.body : answer.body + "\n") : show_outputs(body);
  if (!shown.ok()) return failed(shown.error(), json);
  return end_with(*end, json);
}

int run_whole(const ExecOptions& options, HttpClient& client, const HttpRequest& request) {
  auto answer = client.call(request);
  if (!answer.ok()) return failed(answer.error(), options.client.json);
  if (!answer->ok()) return refused(*answer, options.client.json);
  return show_result(*answer, options.client.json);
}

int run_stream(const ExecOptions& options, HttpClient& client, HttpRequest request) {
  const bool json = options.client.json;
  EventStream events(printing(json, options.lines));
  request.wait_sec = kAnswerSec;
  request.body_wait_sec = kStreamSilenceSec;
  auto answer = client.call(request, [&](std::string_view bytes) { return events.feed(bytes); });
  if (!answer.ok()) return failed(answer.error(), json);
  if (!answer->ok()) return refused(*answer, json);
  auto end = events.finish();
  if (!end.ok()) return failed(end.error(), json);
  return end_with(*end, json);
}

// The id of an exec that was started; empty, with the answer reported: there is none.
std::string id_of(const HttpAnswer& answer, bool json) {
  auto id = text_at(Json::parse(answer.body, nullptr, false), "exec_id");
  // It is printed, and part of a command to be copied.
  if (id.size() == 32 && id.find_first_not_of("0123456789abcdef") == id.npos) return id;
  failed(Error{ISOGATE_LOST, 0, "the gateway's answer has no exec_id"}, json);
  return "";
}

int run_background(const ExecOptions& options, HttpClient& client, const HttpRequest& request) {
  bool json = options.client.json;
  auto answer = client.call(request);
  if (!answer.ok()) return failed(answer.error(), json);
  if (!answer->ok()) return refused(*answer, json);
  const std::string id = id_of(*answer, json);
  if (id.empty()) return kGateway;
  print(json ? answer->body : id + "\n");
  return kDone;
}

}  // namespace

EventStream::Handlers printing(bool json, bool lines) {
  EventStream::Handlers handlers;
  if (json)
    handlers.line = [](std::string_view line) { return write_all(1, std::string(line) + "\n"); };
  else
    handlers.output = [lines](bool to_stderr, std::string_view bytes, bool partial) {
      return write_all(to_stderr ? 2 : 1, std::string(bytes) + (lines && !partial ? "\n" : ""));
    };
  return handlers;
}

int end_with(const ExecEnd& end, bool json) {
  if (!json) tell_what_ended_it(end);
  if (end.truncated && !json) {
    complain("the output was cut: it is longer than the cap");
    advise("Raise --max-output, or use --stream, which has no cap.");
  }
  if (end.exit_code) return *end.exit_code;
  if (end.outcome == "not_started") {
    complain("the program was not started: " + (end.reason.empty() ? "no reason is given" : end.reason));
    return kGateway;
  }
  complain((end.reason.empty() ? "contact was lost" : end.reason) +
           ": what became of the program is not known");
  advise("It may have run, completely or in part: check before you run it again.");
  return kGateway;
}

Result<void> check_terminal() {
  if (::isatty(0) != 0) return {};
  return invalid("stdin is no terminal, and the program's terminal needs one: see `exec -i`");
}

AttachEnd run_attached(const ExecOptions& options) {
  bool json = options.client.json;
  if (options.tty)
    if (auto usable = check_terminal(); !usable.ok()) return {report(usable.error(), json)};
  auto request = exec_request(options);
  if (!request.ok()) return {report(request.error(), json)};
  auto client = find_gateway(options.client);
  if (!client.ok()) return {report(client.error(), json)};
  auto answer = client->call(*request);
  if (!answer.ok()) return {failed(answer.error(), json)};
  if (!answer->ok()) return {refused(*answer, json)};
  if (answer->status != kAccepted) return {show_result(*answer, json), true};
  const std::string id = id_of(*answer, json);
  if (id.empty()) return {kGateway};
  return attach(*client, {.exec_id = id, .pty = options.tty, .is_ours = true});
}

int run_exec(const ExecOptions& options) {
  if (options.attaches()) return run_attached(options).exit_code;
  auto request = exec_request(options);
  if (!request.ok()) return report(request.error(), options.client.json);
  auto client = find_gateway(options.client);
  if (!client.ok()) return report(client.error(), options.client.json);
  if (options.background) return run_background(options, *client, *request);
  return options.stream ? run_stream(options, *client, *request) : run_whole(options, *client, *request);
}

}  // namespace isogate::cli
