// The Model Context Protocol at POST /mcp and /mcp/{agent_id}, without sessions: each request stands for
// itself.
#include <algorithm>

#include "gateway/front/api/access.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/mcp/rpc.h"
#include "gateway/front/mcp/tools.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kSilence{10};
constexpr std::string_view kInstructions =
    "Each agent_id has a sandbox of its own, which its first call makes and which stays: files in its "
    "workspace are there "
    "in the next call. A program and all that it starts end with its call.";

// Events of one request, begun when there is something to say before its end.
class Events {
 public:
  Events(Exchange& exchange, const Message& message) : exchange_(exchange), token_(message.progress_token) {
    const std::string_view accept = exchange.header("Accept");
    possible_ = accept.find("text/event-stream") != std::string_view::npos;
  }

  // Looked at again and again while a tool works.
  Task<void> progress(std::string_view output) {
    if (!possible_) co_return;
    if (token_ && !output.empty()) {
      ordered_json params = {{"progressToken", *token_}, {"progress", ++told_}, {"message", output}};
      co_return co_await send(R"({"jsonrpc":"2.0","method":"notifications/progress","params":)" +
                              json_text(params) + "}");
    }
    if (steady_clock::now() - last_ < kSilence) co_return;
    co_await begin();
    co_await exchange_.write(": \n\n");
  }

  Task<void> end(std::string_view response) {
    if (!exchange_.begun()) co_return co_await exchange_.send(200, "application/json", response);
    co_await send(response);
    co_await exchange_.finish();
  }

 private:
  Task<void> begin() {
    last_ = steady_clock::now();
    if (exchange_.begun()) co_return;
    Headers headers;
    headers.emplace_back("Cache-Control", "no-cache, no-transform");
    headers.emplace_back("X-Accel-Buffering", "no");
    co_await exchange_.begin(200, "text/event-stream", std::nullopt, headers);
  }

  Task<void> send(std::string_view text) {
    co_await begin();
    co_await exchange_.write("event: message\ndata: ");
    co_await exchange_.write(text);
    co_await exchange_.write("\n\n");
  }

  Exchange& exchange_;
  const std::optional<json> token_;
  bool possible_ = false;
  uint64_t told_ = 0;
  steady_clock::time_point last_ = steady_clock::now();
};

std::string versions_json() {
  ordered_json versions = ordered_json::array();
  for (const std::string_view each : kVersions) versions.push_back(each);
  return json_text(versions);
}

std::string discovered() {
  std::string text = "{" + modern_members(true) + "\"supportedVersions\":" + versions_json() +
                     ",\"capabilities\":{\"tools\":{}},\"instructions\":";
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

std::string listed(const Message& message) {
  if (message.params.contains("cursor"))
    throw RpcError{.code = RpcError::kParams, .message = "there is no such `cursor`: the list is whole"};
  return "{" + (message.modern ? modern_members(true) : "") + "\"tools\":" + json_text(tool_list()) + "}";
}

std::string called_text(const Message& message, const ToolResult& result) {
  std::string text =
      "{" + (message.modern ? modern_members(false) : "") + R"("content":[{"type":"text","text":)";
  append_json_string(text, result.text);
  text += "}]";
  if (!result.structured.empty()) text.append(",\"structuredContent\":").append(result.structured);
  return text.append(result.is_error ? ",\"isError\":true}" : ",\"isError\":false}");
}

// A refusal is a result, too: a model reads it and does better.
ToolResult refused(const ApiError& error) {
  ToolResult result;
  result.text = std::string(error.code_text()) + ": " + printable(error.message, 2000);
  result.is_error = true;
  return result;
}

Task<std::string> call_tool(App& app, Exchange& exchange, Message& message, Events& events) {
  const auto name = text_field(message.params, "name");
  const Tool* tool = name ? find_tool(*name) : nullptr;
  if (tool == nullptr)
    throw RpcError{.code = RpcError::kParams,
                   .message = "there is no tool `" + printable(name.value_or(""), 80) + "`"};
  json none = json::object();
  const auto given = message.params.find("arguments");
  json& arguments = given == message.params.end() || given->is_null() ? none : *given;
  if (!arguments.is_object())
    throw RpcError{.code = RpcError::kParams, .message = "`arguments` must be an object"};
  ToolResult result;
  try {
    check_arguments(*tool, arguments);
    ToolCall call{app, exchange,
                  agent_of(exchange, app.config.multi_agent, text_field(arguments, "agent_id")), arguments,
                  [&events](std::string_view output) { return events.progress(output); }};
    result = co_await tool->call(call);
  } catch (const ApiError& error) {
    result = refused(error);
  }
  co_return called_text(message, result);
}

Task<std::string> answer(App& app, Exchange& exchange, Message& message, Events& events) {
  if (message.modern) check_modern(exchange, message);
  if (message.method == "tools/call") co_return co_await call_tool(app, exchange, message, events);
  if (message.method == "tools/list") co_return listed(message);
  if (message.modern && message.method == "server/discover") co_return discovered();
  if (!message.modern && message.method == "initialize") co_return initialized(message);
  if (!message.modern && message.method == "ping") co_return "{}";
  throw RpcError{.code = RpcError::kMethod,
                 .message = "there is no method `" + printable(message.method, 80) + "`"};
}

Task<void> handle_mcp(App& app, Exchange& exchange) {
  std::string id;
  bool modern = exchange.header("MCP-Protocol-Version") == kModern;
  std::optional<RpcError> refusal;
  try {
    json body;
    try {
      body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
    } catch (const ApiError& error) {
      if (error.code != Code::kInvalidRequest) throw;
      refusal = RpcError{.code = RpcError::kParse, .message = error.message};
    }
    if (!refusal) {
      auto message = message_in(exchange, std::move(body), id);
      if (!message || message->id.empty()) co_return co_await exchange.send(202, "application/json", "");
      modern = message->modern;
      Events events(exchange, *message);
      const std::string result = co_await answer(app, exchange, *message, events);
      co_return co_await events.end(response(id, result));
    }
  } catch (const RpcError& error) {
    refusal = error;
  }
  co_await exchange.send(status_of(*refusal, modern), "application/json", response(id, *refusal));
}

constexpr Route kMcpRoutes[] = {
    {"POST", "/mcp", "mcp", handle_mcp, kAnyField},
    {"POST", "/mcp/{agent_id}", "mcpOfAgent", handle_mcp, kAnyField},
};

}  // namespace
}  // namespace isogate::front::mcp

namespace isogate::front {

std::span<const Route> mcp_routes() { return mcp::kMcpRoutes; }

}  // namespace isogate::front
