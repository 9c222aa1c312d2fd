// The tools that an MCP client may call: each does the same as a call of the HTTP API, with the same code.
// The front's one thread.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "gateway/front/app.h"
#include "gateway/front/exec/long_exec.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front::mcp {

struct ToolCall {
  App& app;
  Exchange& exchange;
  std::string agent;
  nlohmann::json& arguments;
  bool may_go_on = false;  // after its call, as a task
  // Called with its output so far, at most as often as a client gets progress; empty: no client
  // asked.
  std::function<Task<void>(std::string_view output)> progress;
};

struct ToolResult {
  std::string text;        // for a model
  std::string structured;  // the same as JSON, as the tool's output schema has it
  bool is_error = false;
  std::shared_ptr<LongExec> goes_on;  // in place of all these: the result is not known yet
};

struct Tool {
  std::string_view name, title, description;
  std::string_view input, output;  // JSON schemas
  bool reads_only = false, destroys = false, idempotent = false;
  // Throws ApiError, which is the tool's result, too.
  Task<ToolResult> (*call)(ToolCall& call);
};

// In the order in which they are listed: a client that tries the first tool changes nothing.
std::span<const Tool> status_tools();
std::span<const Tool> exec_tools();
std::span<const Tool> search_tools();
std::span<const Tool> file_tools();
std::span<const Tool> end_tools();
// Null: there is none of that name.
const Tool* find_tool(std::string_view name);
// The tools in the form of tools/list, in the order above. `of_agent`: the connection names the agent, so
// they have no `agent_id`.
const nlohmann::ordered_json& tool_list(bool of_agent = false);

// Of an exec that has ended.
ToolResult exec_result(const LongExec& exec);
// The memory for a result if that many bytes of each stream are kept.
uint64_t memory_of_result(uint64_t kept_bytes);
// A refusal is also a result: a model reads it and can correct its call.
ToolResult refused(const ApiError& error);
// As tools/call answers it, and tasks/get.
std::string result_text(const ToolResult& result, bool modern);

// For tools that run a program. A client that disconnects before it has begun ends it. Throws
// ApiError, ClientGone.
Task<std::shared_ptr<LongExec>> start_for(ToolCall& call, nlohmann::json request, size_t kept_bytes);
// Waits for its end, or for that long; a client that disconnects ends it. Throws ApiError: why it never
// ran.
Task<void> follow(ToolCall& call, const std::shared_ptr<LongExec>& exec,
                  std::optional<std::chrono::nanoseconds> limit = {});
std::string ending_text(const ExecAnswer& answer);

// Throws ApiError invalid_request if there are others.
void check_arguments(const Tool& tool, const nlohmann::json& arguments, bool of_agent);

}  // namespace isogate::front::mcp
