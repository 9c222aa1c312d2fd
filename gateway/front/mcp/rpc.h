// One JSON-RPC message of MCP over HTTP: revision 2026-07-28, in which each request names its revision,
// and those of 2025, which negotiate it first. The front's one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/http/exchange.h"

namespace isogate::front::mcp {

inline constexpr std::string_view kModern = "2026-07-28";
inline constexpr std::string_view kTasksExtension = "io.modelcontextprotocol/tasks";
// All that are served, the newest first.
inline constexpr std::string_view kVersions[] = {kModern, "2025-11-25", "2025-06-18", "2025-03-26"};

inline constexpr std::string_view kOfBatches = "2025-03-26";  // alone
inline constexpr std::string_view kVersionHeader = "MCP-Protocol-Version";

inline constexpr std::string_view kTaskMethods[] = {"tasks/get", "tasks/cancel", "tasks/update"};
bool is_task_method(std::string_view method);

struct RpcError {
  static constexpr int kParse = -32700, kRequest = -32600, kMethod = -32601, kParams = -32602,
                       kInternal = -32603, kHeader = -32020, kCapability = -32021, kVersion = -32022;
  int code = kInternal;
  std::string message;
  nlohmann::ordered_json data = nullptr;
};

struct Message {
  std::string id;  // its text, as it came; empty: a notification
  std::string method;
  nlohmann::json params = nlohmann::json::object();
  bool modern = false;
  bool takes_tasks = false;  // its client knows the extension
  std::optional<nlohmann::json> progress_token;
};

// The parts of a request beside its body.
struct RequestHeaders {
  std::optional<std::string_view> version, method, name;
};
RequestHeaders headers_of(const Exchange& exchange);

// The revision of a message, by its own fields, else by its headers.
bool is_modern(const RequestHeaders& headers, const nlohmann::json& body);
// Throws RpcError. nullopt: a response, which is ignored. `id` is set as soon as it is known.
std::optional<Message> message_in(const RequestHeaders& headers, nlohmann::json body, std::string& id);
// The declarations of a message of 2026-07-28, in its body and its headers. Throws RpcError.
void check_modern(const RequestHeaders& headers, Message& message);

std::string response(const std::string& id, std::string_view result);
std::string response(const std::string& id, const RpcError& error);
// The status of a refusal: always 200 in 2025, because clients read the reason of no other
// status.
unsigned status_of(const RpcError& error, bool modern);

// Appends the additional members of results of 2026-07-28, after a comma.
std::string modern_members(bool list);

}  // namespace isogate::front::mcp
