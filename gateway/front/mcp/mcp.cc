// The Model Context Protocol at POST /mcp and /mcp/{agent_id}, without sessions: each request stands for
// itself.
#include <algorithm>

#include "gateway/front/api/access.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/mcp/rpc.h"
#include "gateway/front/mcp/tasks.h"
#include "gateway/front/mcp/tools.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kSilence{10};
constexpr size_t kMostInBatch = 32;
constexpr std::string_view kInstructions =
    "Each agent_id has a sandbox of its own, which its first call makes and which stays: files in its "
    "workspace are there in the next call. A program and all that it starts end with its call.";

// Events of one request, begun when there is something to say before its end.
class Events {
 public:
  Events(Exchange& exchange, bool possible)
      : exchange_(exchange),
        possible_(possible && exchange.header("Accept").find("text/event-stream") != std::string_view::npos) {
  }

  // Whoever asked is told how far it is by this token.
  void tell(const std::optional<json>& token) { token_ = token; }
  // The status of the answer; 200 unless it is a refusal alone.
  void set_status(unsigned status) { status_ = status; }

  // Looked at again and again while a tool works.
  Task<void> progress(std::string_view output) {
    if (!possible_) co_return;
    const auto now = steady_clock::now();
    const bool silent = output.empty();
    if (silent && now - last_ < kSilence) co_return;
    if (token_) {
      const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - began_).count();
      const std::string running = "running for " + std::to_string(seconds) + " s";
      ordered_json params = {{"progressToken", *token_},
                             {"progress", ++told_},
                             {"message", silent ? running : std::string(output)}};
      const std::string text =
          R"({"jsonrpc":"2.0","method":"notifications/progress","params":)" + json_text(params) + "}";
      co_return co_await send(text);
    }
    if (now - last_ < kSilence) co_return;
    co_await begin();
    co_await exchange_.write(": \n\n");
  }

  // It goes on when its client has been told so. One that leaves before ends it.
  void hand_over(std::shared_ptr<LongExec> exec) {
    task_ = std::move(exec);
    leaves_.emplace(exchange_.watch_client(), [this] { task_->kill(); });
  }

  Task<void> end(std::string_view response) {
    try {
      if (!exchange_.begun()) {
        co_await exchange_.send(status_, "application/json", response);
      } else {
        co_await send(response);
        co_await exchange_.finish();
      }
    } catch (const ClientGone&) {
      if (task_) task_->kill();
      throw;
    }
  }

 private:
  Task<void> begin() {
    last_ = steady_clock::now();
    if (exchange_.begun()) co_return;
    Headers headers;
    headers.emplace_back("Cache-Control", "no-cache, no-transform");
    co_await exchange_.begin_stream("text/event-stream", headers);
  }

  Task<void> send(std::string_view text) {
    co_await begin();
    co_await exchange_.write("event: message\ndata: ");
    co_await exchange_.write(text);
    co_await exchange_.write("\n\n");
  }

  Exchange& exchange_;
  const bool possible_;
  std::optional<json> token_;
  std::shared_ptr<LongExec> task_;
  std::optional<OnKill> leaves_;
  unsigned status_ = 200;
  uint64_t told_ = 0;
  const steady_clock::time_point began_ = steady_clock::now();
  steady_clock::time_point last_ = began_;
};

std::string discovered() {
  std::string text = "{" + modern_members(true) +
                     "\"supportedVersions\":" + json_text(ordered_json(kVersions)) +
                     R"(,"capabilities":{"tools":{},"extensions":{")" + std::string(kTasksExtension) +
                     R"(":{}}},"instructions":)";
  append_json_string(text, kInstructions);
  return text + "}";
}

std::string initialized(const Message& message) {
  const auto asked = text_field(message.params, "protocolVersion");
  if (!asked) throw RpcError{.code = RpcError::kParams, .message = "`protocolVersion` is missing"};
  const auto legacy = std::span(kVersions).subspan(1);
  const auto found = std::ranges::find(legacy, *asked);
  ordered_json result = {{"protocolVersion", found == legacy.end() ? legacy.front() : *found},
                         {"capabilities", {{"tools", ordered_json::object()}}},
                         {"serverInfo", {{"name", "isogate"}, {"version", ISOGATE_VERSION}}},
                         {"instructions", kInstructions}};
  return json_text(result);
}

std::string listed(const Exchange& exchange, const Message& message) {
  if (text_field(message.params, "cursor"))
    throw RpcError{.code = RpcError::kParams, .message = "there is no such `cursor`: the list is whole"};
  return "{" + (message.modern ? modern_members(true) : "") +
         "\"tools\":" + json_text(tool_list(!exchange.agent_param.empty())) + "}";
}

// One tools/call, for the metrics and the log, whichever way it ends.
class CallRecord {
 public:
  CallRecord(App& app, const Exchange& exchange) : app_(app), exchange_(exchange) {}
  CallRecord(const CallRecord&) = delete;
  CallRecord& operator=(const CallRecord&) = delete;
  ~CallRecord() {
    app_.metrics.mcp_call_ended(tool, outcome);
    const std::chrono::duration<double, std::milli> took = steady_clock::now() - began_;
    log::info("mcp_call", {{"request_id", exchange_.request_id},
                           {"tenant", exchange_.principal.tenant},
                           {"agent_id", agent},
                           {"tool", tool},
                           {"outcome", outcome},
                           {"ms", took.count()}});
  }

  std::string_view tool = "none", outcome = "refused";
  std::string agent;

 private:
  App& app_;
  const Exchange& exchange_;
  const steady_clock::time_point began_ = steady_clock::now();
};

Task<std::string> call_tool(App& app, Exchange& exchange, Message& message, Events& events) {
  CallRecord record(app, exchange);
  const auto name = text_field(message.params, "name");
  const Tool* tool = name ? find_tool(*name) : nullptr;
  if (tool != nullptr) record.tool = tool->name;
  if (tool == nullptr)
    throw RpcError{.code = RpcError::kParams,
                   .message = "there is no tool `" + printable(name.value_or(""), 80) + "`"};
  json none = json::object();
  const auto given = message.params.find("arguments");
  json& arguments = given == message.params.end() || given->is_null() ? none : *given;
  if (!arguments.is_object())
    throw RpcError{.code = RpcError::kParams, .message = "`arguments` must be an object"};
  record.outcome = "failed";
  ToolResult result;
  bool too_many = false;
  try {
    if (exchange.watch_client().killed()) throw ClientGone{};
    exchange.check_admitted();
    check_arguments(*tool, arguments, !exchange.agent_param.empty());
    ToolCall call{
        app,
        exchange,
        record.agent = agent_of(exchange, app.config.multi_agent, text_field(arguments, "agent_id")),
        arguments,
        message.takes_tasks,
        [&events](std::string_view output) { return events.progress(output); }};
    result = co_await tool->call(call);
  } catch (const ClientGone&) {
    record.outcome = "gone";
    throw;
  } catch (const ApiError& error) {
    exchange.note(error);
    result = refused(error);
    too_many = error.code == Code::kRateLimited;
  }
  if (too_many) co_await exchange.hold_back();
  record.outcome = result.goes_on ? "task" : result.is_error ? "error" : "ok";
  if (!result.goes_on) co_return result_text(result, message.modern);
  events.hand_over(result.goes_on);
  co_return task_begun(app, *result.goes_on);
}

Task<std::string> answer(App& app, Exchange& exchange, Message& message, Events& events) {
  if (message.modern) check_modern(headers_of(exchange), message);
  if (message.method == "tools/call") co_return co_await call_tool(app, exchange, message, events);
  if (message.method == "tools/list") co_return listed(exchange, message);
  if (message.modern && message.method == "server/discover") co_return discovered();
  if (message.modern && is_task_method(message.method)) co_return answer_of_task(app, exchange, message);
  if (!message.modern && message.method == "initialize") co_return initialized(message);
  if (!message.modern && message.method == "ping") co_return "{}";
  throw RpcError{.code = RpcError::kMethod,
                 .message = "there is no method `" + printable(message.method, 80) + "`"};
}

// The text of the response; empty: none is due.
Task<std::string> respond(App& app, Exchange& exchange, json body, Events& events) {
  if (body.is_object() && body.contains("method") && !body.contains("id")) co_return "";
  std::string id;
  std::optional<RpcError> refusal;
  const bool modern = is_modern(headers_of(exchange), body);
  try {
    auto message = message_in(headers_of(exchange), std::move(body), id);
    if (!message || message->id.empty()) co_return "";
    events.tell(message->progress_token);
    co_return response(id, co_await answer(app, exchange, *message, events));
  } catch (const ApiError& error) {
    if (error.code != Code::kInvalidRequest) throw;
    refusal = RpcError{.code = RpcError::kParams, .message = error.message};
  } catch (const RpcError& error) {
    refusal = error;
  }
  events.set_status(status_of(*refusal, modern));
  co_return response(id, *refusal);
}

// Several messages at once, as revision 2025-03-26 has them. They are answered one after another.
Task<std::string> respond_to_all(App& app, Exchange& exchange, json& batch, Events& events) {
  std::string all;
  for (json& each : batch) {
    const std::string one = co_await respond(app, exchange, std::move(each), events);
    if (!one.empty()) all.append(all.empty() ? "[" : ",").append(one);
  }
  events.set_status(200);
  co_return all.empty() ? all : all + "]";
}

void check_batch(const Exchange& exchange, const json& batch) {
  const RequestHeaders headers = headers_of(exchange);
  const bool known = headers.version.value_or(kOfBatches) == kOfBatches;
  const bool plain = std::ranges::none_of(batch, [&](const json& each) {
    return is_modern(headers, each) || (each.is_object() && each.value("method", json()) == "initialize");
  });
  if (known && plain && !batch.empty() && batch.size() <= kMostInBatch) return;
  throw RpcError{.code = RpcError::kRequest,
                 .message = "several messages at once: revision " + std::string(kOfBatches) +
                            " alone has them, 1 to " + std::to_string(kMostInBatch) +
                            ", without `initialize`"};
}

// A browser says which page asks, and a page that is not listed gets nothing, key or not.
void check_origin(const Exchange& exchange) {
  if (exchange.has_header("Origin") && exchange.cors_origin.empty())
    throw ApiError{.code = Code::kPermissionDenied,
                   .message = "requests from web pages need their origin in `cors.origins`"};
}

Task<void> handle_mcp(App& app, Exchange& exchange) {
  check_origin(exchange);
  json body;
  std::optional<RpcError> refusal;
  try {
    body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
    if (body.is_array()) check_batch(exchange, body);
  } catch (const ApiError& error) {
    if (error.code != Code::kInvalidRequest) throw;
    refusal = RpcError{.code = RpcError::kParse, .message = error.message};
  } catch (const RpcError& error) {
    refusal = error;
  }
  if (refusal) co_return co_await exchange.send(400, "application/json", response("", *refusal));
  Events events(exchange, !body.is_array());
  std::string text;
  if (body.is_array()) {
    text = co_await respond_to_all(app, exchange, body, events);
  } else {
    text = co_await respond(app, exchange, std::move(body), events);
  }
  if (text.empty()) co_return co_await exchange.send(202, "application/json", "");
  co_await events.end(text);
}

constexpr Route kMcpRoutes[] = {
    {.method = "POST",
     .path = "/mcp",
     .operation_id = "mcp",
     .handle = handle_mcp,
     .fields = kAnyValue,
     .also_with_slash = true},
    {.method = "POST",
     .path = "/mcp/{agent_id}",
     .operation_id = "mcpOfAgent",
     .handle = handle_mcp,
     .fields = kAnyValue,
     .also_with_slash = true},
};

}  // namespace
}  // namespace isogate::front::mcp

namespace isogate::front {

std::span<const Route> mcp_routes() { return mcp::kMcpRoutes; }

}  // namespace isogate::front
