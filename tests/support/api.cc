#include "tests/support/api.h"

#include <chrono>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <thread>

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

const char kAlphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::string header_of(const Headers& headers, std::string_view name) {
  HttpResponse holder;
  holder.headers = headers;
  return holder.header(name);
}

std::set<std::string> names_of(const Json& object) {
  std::set<std::string> names;
  for (const auto& item : object.items()) names.insert(item.key());
  return names;
}

testing::AssertionResult wrong(const Answer& answer, const std::string& why) {
  return testing::AssertionFailure() << why << "; the answer is " << answer.status << " "
                                     << answer.text.substr(0, 2000);
}

}  // namespace

std::string Answer::header(std::string_view name) const { return header_of(headers, name); }

Answer answer_of(HttpResponse response) {
  Answer answer{response.status, std::move(response.headers), std::move(response.body), {}};
  answer.body = Json::parse(answer.text, nullptr, false);
  if (answer.body.is_discarded()) answer.body = nullptr;
  return answer;
}

testing::AssertionResult refused(const Answer& answer, int status, const std::string& code) {
  const std::string wanted = std::to_string(status) + " " + code + " was wanted";
  if (answer.status != status) return wrong(answer, wanted);
  const Json& body = answer.body;
  if (!body.is_object() || names_of(body) != std::set<std::string>{"error", "request_id"})
    return wrong(answer, "not an error object");
  const Json& error = body["error"];
  if (!error.is_object() ||
      names_of(error) != std::set<std::string>{"code", "message", "retryable", "details"})
    return wrong(answer, "`error` has other fields than code, message, retryable and details");
  if (error["code"] != code) return wrong(answer, wanted);
  if (!error["message"].is_string() || error["message"].get<std::string>().empty())
    return wrong(answer, "no message");
  if (!error["retryable"].is_boolean() || !error["details"].is_object())
    return wrong(answer, "a field has a wrong type");
  if (!body["request_id"].is_string() || body["request_id"] != answer.header("X-Request-Id"))
    return wrong(answer, "request_id is not the X-Request-Id `" + answer.header("X-Request-Id") + "`");
  if (answer.header("Content-Type") != "application/json") return wrong(answer, "not application/json");
  if (status == 401 && answer.header("WWW-Authenticate").empty()) return wrong(answer, "no WWW-Authenticate");
  if (status == 405 && answer.header("Allow").empty()) return wrong(answer, "no Allow");
  return testing::AssertionSuccess();
}

testing::AssertionResult succeeded(const Answer& answer) {
  if (answer.status != 200) return wrong(answer, "200 was expected");
  if (answer.header("X-Request-Id").empty()) return wrong(answer, "no X-Request-Id");
  return testing::AssertionSuccess();
}

Caller::Caller(std::string url, std::string key, std::string agent)
    : url_(std::move(url)), key_(std::move(key)), agent_(std::move(agent)) {}

Headers Caller::headers() const {
  Headers all{{"Content-Type", "application/json"}};
  if (!key_.empty()) all.emplace_back("Authorization", "Bearer " + key_);
  return all;
}

Answer Caller::call(const std::string& method, const std::string& target, Headers headers,
                    const std::string& body) const {
  if (!key_.empty() && header_of(headers, "Authorization").empty())
    headers.emplace_back("Authorization", "Bearer " + key_);
  const bool carries = !body.empty() || method == "POST" || method == "PUT";
  if (carries && header_of(headers, "Content-Length").empty())
    headers.emplace_back("Content-Length", std::to_string(body.size()));
  HttpConnection connection(url_, 300);  // a pod has 150 s to start, and its program its own time
  connection.send_request_head(method, target, headers);
  try {
    connection.send(body);
  } catch (const std::runtime_error&) {
    // refused before it was complete: the response says why
  }
  return answer_of(connection.read_response(method));
}

Json Caller::with_agent(Json body) const {
  if (!agent_.empty() && body.is_object() && !body.contains("agent_id")) body["agent_id"] = agent_;
  return body;
}

Answer Caller::post(const std::string& path, Json body) const {
  return call("POST", path, {{"Content-Type", "application/json"}}, with_agent(std::move(body)).dump());
}

Answer Caller::exec(const std::string& command, Json more) const {
  more["command"] = command;
  return post("/exec", std::move(more));
}

Json Caller::run(const std::string& command, Json more) const {
  Answer answer = exec(command, std::move(more));
  if (answer.status != 200)
    throw std::runtime_error("`" + command.substr(0, 200) + "` was answered " +
                             std::to_string(answer.status) + " " + answer.text);
  return answer.body;
}

Json Caller::run_argv(const std::vector<std::string>& argv, Json more) const {
  more["argv"] = argv;
  Answer answer = post("/exec", std::move(more));
  if (answer.status != 200)
    throw std::runtime_error("`" + argv.at(0) + "` was answered " + std::to_string(answer.status) + " " +
                             answer.text);
  return answer.body;
}

std::string Caller::out(const std::string& command) const { return bytes_of(run(command), "stdout"); }

Answer Caller::write(const std::string& path, const std::string& content, Json more) const {
  more["path"] = path;
  more["content"] = content;
  return post("/workspace/write", std::move(more));
}

Answer Caller::read(const std::string& path, Json more) const {
  more["path"] = path;
  return post("/workspace/read", std::move(more));
}

std::string Caller::content(const std::string& path) const {
  Answer answer = read(path);
  if (answer.status != 200)
    throw std::runtime_error("reading `" + path + "` was answered " + std::to_string(answer.status) + " " +
                             answer.text);
  return bytes_of(answer.body, "content");
}

EventStream::EventStream(const Caller& caller, const std::string& method, const std::string& target,
                         const std::string& body, double timeout_sec)
    : connection(caller.url(), timeout_sec) {
  Headers headers = caller.headers();
  if (!body.empty()) headers.emplace_back("Content-Length", std::to_string(body.size()));
  connection.send_request_head(method, target, headers);
  connection.send(body);
  head = connection.read_head(method);
  if (head.status == 200) return;
  for (std::string more = connection.read_some(); !more.empty(); more = connection.read_some())
    head.body += more;
}

std::optional<Json> EventStream::next() {
  if (head.status != 200)
    throw std::runtime_error("a stream was answered " + std::to_string(head.status) + " " + head.body);
  std::string line = connection.read_line();
  if (line.empty()) return std::nullopt;
  return Json::parse(line);
}

std::vector<Json> EventStream::rest() {
  std::vector<Json> events;
  while (auto event = next()) events.push_back(std::move(*event));
  return events;
}

ExecStream::ExecStream(const Caller& caller, Json request, double timeout_sec)
    : EventStream(caller, "POST", "/exec-stream", caller.with_agent(std::move(request)).dump(), timeout_sec) {
}

std::string bytes_of(const Json& holder, const std::string& field) {
  const std::string& text = holder.at(field).get_ref<const std::string&>();
  const std::string encoding = field == "data" || field == "content" ? "encoding" : field + "_encoding";
  return holder.at(encoding) == "base64" ? from_base64(text) : text;
}

std::string data_of(const std::vector<Json>& events, const std::string& stream) {
  std::string all;
  for (const Json& event : events)
    if (event.at("event") == stream) all += bytes_of(event, "data");
  return all;
}

std::string tenant_key(char tenant) { return std::string(64, tenant); }

std::string keys_yaml(std::string_view tenants) {
  std::string yaml = "keys:\n";
  for (const char name : tenants)
    yaml += std::string("  - {name: ") + name + ", tenant: " + name +
            ", sha256: " + sha256_hex(tenant_key(name)) + "}\n";
  return yaml;
}

std::string base64(std::string_view bytes) {
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    unsigned group = 0;
    size_t have = std::min<size_t>(3, bytes.size() - i);
    for (size_t j = 0; j < 3; ++j)
      group = group << 8 | (j < have ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (size_t j = 0; j < 4; ++j) out += j <= have ? kAlphabet[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::string from_base64(const std::string& text) {
  std::string out;
  unsigned group = 0;
  int bits = 0;
  for (char c : text) {
    if (c == '=') break;
    const char* at = std::char_traits<char>::find(kAlphabet, 64, c);
    if (at == nullptr) throw std::runtime_error("not base64: " + text.substr(0, 80));
    group = group << 6 | static_cast<unsigned>(at - kAlphabet);
    if ((bits += 6) < 8) continue;
    bits -= 8;
    out += static_cast<char>(group >> bits & 0xff);
  }
  return out;
}

std::string sha256_hex(const std::string& bytes) {
  ProgramOptions options;
  options.stdin_bytes = bytes;
  return run_program({"sha256sum"}, options).out.substr(0, 64);
}

std::string noise(size_t size, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; i += 8) {
    uint64_t word = random();
    std::memcpy(bytes.data() + i, &word, std::min<size_t>(8, size - i));
  }
  return bytes;
}

bool decided(const Gateway& gateway) {
  return eventually(90, [&] {
    const Answer answer = Caller(gateway, "").get("/readyz");
    return answer.status == 200 || answer.body.value("/error/retryable"_json_pointer, true) == false;
  });
}

void expect_well(const Gateway& gateway, const Caller& agent) {
  double took = 60;
  for (int tries = 0; tries < 5 && took > 1; ++tries) {
    took = seconds_of([&] { EXPECT_EQ(http_call(gateway.url(), "GET", "/healthz").status, 200); });
  }
  EXPECT_LT(took, 1.0) << "/healthz is slow";
  Answer later = agent.exec("echo works");
  // A late sandbox is killed from outside, with the calls that were begun meanwhile.
  if (refused(later, 502, "outcome_unknown")) later = agent.exec("echo works");
  EXPECT_TRUE(succeeded(later)) << "a later exec of the same agent";
  EXPECT_EQ(later.body.value("stdout", ""), "works\n") << later.text;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return since(start);
}

bool slow_tests() { return std::getenv("ISOGATE_SLOW_TESTS") != nullptr; }

}  // namespace isogate::test
