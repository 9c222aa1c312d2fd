// isogate mcp --stdio: a client's messages, a line each, go to the gateway's POST /mcp, each in a call of its
// own, and what comes back goes out as lines. What they mean is the gateway's business.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "gateway/cli/cli.h"
#include "gateway/cli/client.h"
#include "gateway/cli/event_stream.h"
#include "gateway/cli/output.h"
#include "gateway/front/base/names.h"
#include "lib/json.h"
#include "lib/text.h"

namespace isogate::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kLongestMessage = 10u << 20, kLongestEvent = 16u << 20, kMostCallsAtOnce = 64;
constexpr double kLongestCallSec = 86400 + kAnswerSec;  // a client that waits less cancels
constexpr std::chrono::milliseconds kLastLine{500};
constexpr int kParseError = -32700, kInvalidRequest = -32600, kInternalError = -32603;
constexpr int kTooLarge = 413, kTakenNote = 202;  // of HTTP
constexpr const char* kRevisionKey = "io.modelcontextprotocol/protocolVersion";

// A request, or what only the gateway can judge.
struct McpCall {
  std::string text;    // as it came
  std::string id;      // JSON; empty: none that an answer could repeat
  std::string method;  // empty: no request
  bool modern = false;
  std::vector<std::pair<std::string, std::string>> headers;
  CancelHandle cancel;
};

// Itself, or where a header cannot hold it, in base64.
std::string header_value(const std::string& text) {
  const bool plain = std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c < 0x7f; }) &&
                     !text.starts_with(' ') && !text.ends_with(' ') &&
                     !(text.starts_with("=?base64?") && text.ends_with("?="));
  return plain ? text : "=?base64?" + base64_encode(text) + "?=";
}

// Of methods, the parameter that the header Mcp-Name repeats.
constexpr std::pair<std::string_view, const char*> kNamedBy[] = {
    {"tools/call", "name"},  {"prompts/get", "name"},    {"resources/read", "uri"},
    {"tasks/get", "taskId"}, {"tasks/update", "taskId"}, {"tasks/cancel", "taskId"}};

void add_modern_headers(McpCall& call, const Json& params, const Json& revision) {
  const auto add = [&call](const char* name, const Json& value) {
    if (value.is_string()) call.headers.emplace_back(name, header_value(value.get_ref<const std::string&>()));
  };
  call.modern = true;
  add("MCP-Protocol-Version", revision);
  call.headers.emplace_back("Mcp-Method", header_value(call.method));
  for (const auto& [method, name] : kNamedBy)
    if (call.method == method) add("Mcp-Name", member(params, name));
}

std::shared_ptr<McpCall> call_of(std::string_view text, const Json& message) {
  auto call = std::make_shared<McpCall>();
  call->text = text;
  call->method = text_at(message, "method");
  if (const Json& id = member(message, "id"); id.is_string() || id.is_number_integer()) call->id = id.dump();
  const Json &params = member(message, "params"), &meta = member(params, "_meta");
  if (meta.contains(kRevisionKey)) add_modern_headers(*call, params, meta[kRevisionKey]);
  return call;
}

std::string error_line(const std::string& id, int code, std::string_view message) {
  std::string line = R"({"jsonrpc":"2.0","id":)" + (id.empty() ? "null" : id) + R"(,"error":{"code":)" +
                     std::to_string(code) + R"(,"message":)";
  append_json_string(line, printable(message, 2000));
  return line + "}}";
}

// What a model reads, and can report.
std::string failed_tool_line(const McpCall& call, std::string_view message) {
  std::string line = R"({"jsonrpc":"2.0","id":)" + call.id + R"(,"result":{)" +
                     (call.modern ? R"("resultType":"complete",)" : "") +
                     R"("content":[{"type":"text","text":)";
  append_json_string(line, printable(message, 2000));
  return line + R"(}],"isError":true}})";
}

class McpOverStdio {
 public:
  explicit McpOverStdio(const McpOptions& options) : options_(options) {}

  // Until stdin ends. What runs then still uses this.
  void run() {
    LineSplitter lines(kLongestMessage);
    const auto take_line = [this](std::string_view line, bool whole) -> Result<void> {
      if (!whole) print_line(error_line("", kInvalidRequest, "a message is longer than 10 MiB"));
      if (whole && line.find_first_not_of(" \t") != std::string_view::npos) take(line);
      return {};
    };
    std::string piece(65536, '\0');
    for (;;) {
      const ssize_t n = ::read(0, piece.data(), piece.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) complain(os_error("cannot read stdin", errno).message);
      if (n <= 0) break;
      (void)lines.feed({piece.data(), static_cast<size_t>(n)}, take_line);
    }
    [[maybe_unused]] const bool whole = output_.try_lock_for(kLastLine);
  }

 private:
  void take(std::string_view line) {
    const Json message = parse_shallow(line);
    if (message.is_discarded()) return print_line(error_line("", kParseError, "a line is not a JSON text"));
    const bool is_notification = !text_at(message, "method").empty() && !message.contains("id");
    if (!is_notification) return start(call_of(line, message));
    if (message["method"] != "notifications/cancelled") return;  // the gateway keeps no state of a client
    cancel(member(member(message, "params"), "requestId").dump());
  }

  void cancel(const std::string& id) {
    std::lock_guard lock(calls_mutex_);
    for (const auto& call : calls_)
      if (call->id == id) call->cancel.cancel();
  }

  void start(const std::shared_ptr<McpCall>& call) {
    if (!may_run(call)) return;
    try {
      std::thread([this, next = call]() mutable {
        for (; next; next = next_after(next)) work(*next);
      }).detach();
    } catch (const std::system_error& error) {
      for (auto next = call; next; next = next_after(next))
        fail(*next, std::string("cannot start a thread for a call: ") + error.what());
    }
  }

  // False: it waits for the end of another. No more of stdin is read while as many wait as may run.
  bool may_run(const std::shared_ptr<McpCall>& call) {
    std::unique_lock lock(calls_mutex_);
    calls_.push_back(call);
    if (running_ < kMostCallsAtOnce) {
      ++running_;
      return true;
    }
    waiting_.push_back(call);
    fewer_wait_.wait(lock, [this] { return waiting_.size() < kMostCallsAtOnce; });
    return false;
  }

  // What runs in its place; null: none waits.
  std::shared_ptr<McpCall> next_after(const std::shared_ptr<McpCall>& ended) {
    std::lock_guard lock(calls_mutex_);
    calls_.remove(ended);
    if (waiting_.empty()) {
      --running_;
      return nullptr;
    }
    auto next = std::move(waiting_.front());
    waiting_.pop_front();
    fewer_wait_.notify_one();
    return next;
  }

  void work(McpCall& call) {
    auto client = find_gateway(options_.client);
    if (!client.ok()) return fail(call, explain(client.error()).in_one_line());
    HttpRequest request{
        .method = "POST",
        .target = "/mcp" + (options_.agent.empty() ? "" : "/" + percent_encode(options_.agent)),
        .content_type = "application/json",
        .body = std::move(call.text),
        .headers = std::move(call.headers),
        .wait_sec = kLongestCallSec,
        .sink_type = "text/event-stream",
        .cancel = &call.cancel};
    request.headers.emplace_back("Accept", "application/json, text/event-stream");
    bool answered = false;
    ServerEvents events(kLongestEvent, [&](const std::string&, const std::string& data) -> Result<void> {
      answered = pass(call, data) || answered;
      return {};
    });
    const auto answer = client->call(request, [&](std::string_view bytes) { return events.feed(bytes); });
    if (answered) return;
    if (!answer.ok()) return fail(call, explain(answer.error()).in_one_line());
    if (answer->status == kTakenNote && call.method.empty()) return;
    if (pass(call, answer->body)) return;
    const std::string gateway = "the gateway at " + client->endpoint().text();
    if (answer->ok())
      return fail(
          call,
          explain(Error{ISOGATE_LOST, 0, gateway + " ended without an answer to the call"}).in_one_line());
    const std::string why = gateway + ": " + explain(*answer).in_one_line();
    if (answer->status != kTooLarge) return fail(call, why);
    print_line(error_line(call.id, kInvalidRequest, why), &call);
  }

  // False: it is no answer, but a notification, which is passed on, or not of JSON-RPC, and dropped.
  bool pass(const McpCall& call, const std::string& text) {
    const Json message = Json::parse(text, nullptr, false);
    if (!message.is_array() && text_at(message, "jsonrpc") != "2.0") return false;
    const bool lacks_id = message.contains("id") && message["id"].is_null();
    if (lacks_id && !call.id.empty()) {  // it could not be read there
      Json with_id = message;
      with_id["id"] = Json::parse(call.id);
      print_line(with_id.dump(), &call);
    } else {
      print_line(text, &call);
    }
    return !message.is_object() || !message.contains("method");
  }

  void fail(const McpCall& call, const std::string& why) {
    if (call.cancel.cancelled()) return;
    complain(why);
    const bool is_tool = call.method == "tools/call" && !call.id.empty();
    print_line(is_tool ? failed_tool_line(call, why) : error_line(call.id, kInternalError, why), &call);
  }

  // A line of its own, and nothing more of a call that was cancelled.
  void print_line(std::string text, const McpCall* of = nullptr) {
    std::ranges::replace_if(
        text, [](char c) { return c == '\n' || c == '\r'; }, ' ');
    std::lock_guard lock(output_);
    if (of == nullptr || !of->cancel.cancelled()) print(text.append("\n"));
  }

  const McpOptions& options_;
  std::timed_mutex output_;
  std::mutex calls_mutex_;
  std::condition_variable fewer_wait_;
  std::list<std::shared_ptr<McpCall>> calls_, waiting_;  // those that wait are in both
  size_t running_ = 0;
};

void end_quietly(int) { ::_exit(kDone); }

}  // namespace

int run_mcp(const McpOptions& options) {
  if (!options.stdio) {
    complain("`isogate mcp` needs --stdio: it serves MCP over stdin and stdout");
    advise("Over HTTP the gateway itself serves it, at /mcp.");
    return kUsage;
  }
  if (!options.agent.empty() && !front::valid_agent_id(options.agent)) {
    complain("--agent: `" + printable(options.agent, 80) +
             "` is not an agent id: a letter or digit, then at most 62 letters, digits, - or _");
    return kUsage;
  }
  struct sigaction end {};
  end.sa_handler = end_quietly;
  if (!is_ignored(SIGTERM)) ::sigaction(SIGTERM, &end, nullptr);
  McpOverStdio server(options);
  server.run();
  ::_exit(kDone);  // which closes the connections of what runs
}

}  // namespace isogate::cli
