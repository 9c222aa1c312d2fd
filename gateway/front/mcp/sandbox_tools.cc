// The sandbox itself, as tools of MCP.
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/sandbox_json.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/mcp/tools.h"
#include "lib/capabilities.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::ordered_json;

Task<ToolResult> call_status(ToolCall& call) {
  const auto sandbox = call.app.sandboxes.records.known(call.exchange.principal.tenant, call.agent);
  ToolResult result;
  ordered_json body = {{"agent_id", call.agent}, {"exists", sandbox != nullptr}};
  if (sandbox) body.update(sandbox_json(*sandbox));
  result.structured = json_text(body);
  result.text = sandbox ? "a sandbox of backend " + sandbox->row.backend + ", isolation " +
                              std::string(isolation_name(sandbox->row.isolation)) + ", " +
                              (sandbox->execs == 1 ? "1 program runs"
                                                   : std::to_string(sandbox->execs) + " programs run") +
                              " in it"
                        : "there is no sandbox yet; the first call that needs one makes it";
  co_return result;
}

Task<ToolResult> call_end(ToolCall& call) {
  const bool purge = bool_field(call.arguments, "purge").value_or(false);
  co_await call.app.sandboxes.end(call.exchange.principal.tenant, call.agent, purge,
                                  call.exchange.request_id);
  ToolResult result;
  result.text = purge ? "the sandbox was ended, and its files were removed"
                      : "the sandbox was ended; its files are kept";
  result.structured = purge ? "{\"ended\":true,\"purged\":true}" : "{\"ended\":true,\"purged\":false}";
  co_return result;
}

constexpr std::string_view kStatusOutput = R"({"properties": {
  "agent_id": {"type": "string"}, "exists": {"type": "boolean"},
  "sandbox_id": {"type": "string"}, "backend": {"type": "string"},
  "isolation": {"type": "string", "description": "that was measured"},
  "image": {"type": ["string", "null"]}, "state": {"type": "string"},
  "created_ms": {"type": "integer"}, "last_used_ms": {"type": "integer"},
  "running_execs": {"type": "integer"}, "disk": {"type": ["object", "null"]}},
  "required": ["agent_id", "exists"]})";
constexpr std::string_view kEndInput = R"({"properties": {
  "purge": {"type": "boolean", "description": "remove its files, too"}}})";
constexpr std::string_view kEndOutput = R"({"properties": {
  "ended": {"type": "boolean"}, "purged": {"type": "boolean"}}, "required": ["ended", "purged"]})";

constexpr Tool kStatusTools[] = {
    {.name = "sandbox_status",
     .title = "Status of the sandbox",
     .description = "Says whether there is a sandbox, how it is isolated, and what runs in it. Makes none.",
     .input = R"({"properties": {}})",
     .output = kStatusOutput,
     .reads_only = true,
     .idempotent = true,
     .call = call_status},
};
constexpr Tool kEndTools[] = {
    {.name = "end_sandbox",
     .title = "End the sandbox",
     .description = "Ends what runs in the sandbox, and the sandbox. With `purge` its files are removed.",
     .input = kEndInput,
     .output = kEndOutput,
     .destroys = true,
     .idempotent = true,
     .call = call_end},
};

}  // namespace

std::span<const Tool> status_tools() { return kStatusTools; }
std::span<const Tool> end_tools() { return kEndTools; }

}  // namespace isogate::front::mcp
