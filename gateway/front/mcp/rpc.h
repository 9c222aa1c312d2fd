// One JSON-RPC message of MCP over HTTP: revision 2026-07-28, which says with each request what it is, and
// those of 2025, which agreed on that before. The front's one thread.
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

// What a request says beside its body.
struct RequestHeaders {
  std::optional<std::string_view> version, method, name;
};
RequestHeaders headers_of(const Exchange& exchange);

// Which kind a message is of, by what it says itself, else by its headers.
bool is_modern(const RequestHeaders& headers, const nlohmann::json& body);
// Throws RpcError. nullopt: a response, which nobody waits for. `id` is set as soon as it is known.
std::optional<Message> message_in(const RequestHeaders& headers, nlohmann::json body, std::string& id);
// What a modern one says of itself, in its body and its headers. Throws RpcError.
void check_modern(const RequestHeaders& headers, Message& message);

std::string response(const std::string& id, std::string_view result);
std::string response(const std::string& id, const RpcError& error);
// Of a refusal: of 2025 they are all 200, since clients read the reason of no other.
unsigned status_of(const RpcError& error, bool modern);

// The members that results of 2026-07-28 have more, behind what is there and a comma.
std::string modern_members(bool list);

}  // namespace isogate::front::mcp
