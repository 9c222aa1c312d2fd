#include "gateway/front/mcp/rpc.h"

#include <algorithm>

#include "gateway/front/http/json_answer.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr size_t kMostToken = 256;
constexpr std::string_view kVersionKey = "io.modelcontextprotocol/protocolVersion";
constexpr std::string_view kCapabilitiesKey = "io.modelcontextprotocol/clientCapabilities";

const json* member(const json& object, std::string_view name) {
  const auto found = object.is_object() ? object.find(name) : object.end();
  return object.is_object() && found != object.end() ? &*found : nullptr;
}

const json* meta_of(const json& params) {
  const json* meta = member(params, "_meta");
  return meta != nullptr && meta->is_object() ? meta : nullptr;
}

bool holds_nul(const json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().find('\0') != std::string::npos;
  if (value.is_array()) return std::ranges::any_of(value, holds_nul);
  if (!value.is_object()) return false;
  return std::ranges::any_of(value.get_ref<const json::object_t&>(), [](const auto& member) {
    return member.first.find('\0') != std::string::npos || holds_nul(member.second);
  });
}

bool is_known(std::string_view version) {
  return std::ranges::find(kVersions, version) != std::end(kVersions);
}

RpcError unknown_version(std::string_view asked) {
  return {.code = RpcError::kVersion,
          .message = "this revision of MCP is not served: " + printable(asked, 80),
          .data = {{"supported", ordered_json(kVersions)}, {"requested", printable(asked, 80)}}};
}

// What is given back as it came.
bool is_token(const json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>().size() <= kMostToken;
  return value.is_number_integer();
}

std::string id_text(const json& id) {
  if (is_token(id)) return id.dump();
  throw RpcError{
      .code = RpcError::kRequest,
      .message = "`id` must be an integer, or a string of at most " + std::to_string(kMostToken) + " bytes"};
}

// A value that a header cannot hold as it is comes as =?base64?…?=. nullopt: that is malformed.
std::optional<std::string> header_text(std::string_view value) {
  constexpr std::string_view kOpening = "=?base64?", kClosing = "?=";
  if (!value.starts_with(kOpening) || !value.ends_with(kClosing) ||
      value.size() < kOpening.size() + kClosing.size())
    return std::string(value);
  return base64_decode(value.substr(kOpening.size(), value.size() - kOpening.size() - kClosing.size()));
}

void check_header(std::optional<std::string_view> given, std::string_view name, std::string_view wanted) {
  if (given && header_text(*given) == wanted) return;
  throw RpcError{.code = RpcError::kHeader,
                 .message = "the header " + std::string(name) +
                            " must be what the body says: " + printable(wanted, 100)};
}

}  // namespace

RequestHeaders headers_of(const Exchange& exchange) {
  const auto value = [&exchange](std::string_view name) {
    return exchange.has_header(name) ? std::optional(exchange.header(name)) : std::nullopt;
  };
  return {.version = value(kVersionHeader), .method = value("Mcp-Method"), .name = value("Mcp-Name")};
}

bool is_task_method(std::string_view method) {
  return std::ranges::find(kTaskMethods, method) != std::end(kTaskMethods);
}

bool is_modern(const RequestHeaders& headers, const json& body) {
  const json* params = member(body, "params");
  const json* meta = params == nullptr ? nullptr : meta_of(*params);
  if (meta != nullptr && meta->contains(kVersionKey)) return true;
  const json* method = member(body, "method");
  return headers.version == kModern && (method == nullptr || *method != "initialize");
}

std::optional<Message> message_in(const RequestHeaders& headers, json body, std::string& id) {
  const json* method = member(body, "method");
  const json* given = member(body, "id");
  if (given != nullptr) id = id_text(*given);
  if (holds_nul(body))
    throw RpcError{.code = RpcError::kParams,
                   .message = "a string of the message holds a NUL character; send bytes as base64"};
  const json* jsonrpc = member(body, "jsonrpc");
  if (jsonrpc == nullptr || *jsonrpc != "2.0")
    throw RpcError{.code = RpcError::kRequest, .message = "`jsonrpc` must be \"2.0\""};
  const bool responds = method == nullptr && (body.contains("result") || body.contains("error"));
  if (responds && is_modern(headers, body)) {
    id.clear();  // it is of no request of the client's
    throw RpcError{.code = RpcError::kRequest,
                   .message = "a response: revision " + std::string(kModern) + " asks its clients nothing"};
  }
  if (responds) return std::nullopt;
  if (method == nullptr || !method->is_string())
    throw RpcError{.code = RpcError::kRequest, .message = "`method` must be a string"};
  Message message{.id = id, .method = method->get<std::string>()};
  const bool modern = is_modern(headers, body);
  if (const auto params = body.find("params"); params != body.end()) {
    if (!params->is_object())
      throw RpcError{.code = RpcError::kParams, .message = "`params` must be an object"};
    message.params = std::move(*params);
  }
  const json* meta = meta_of(message.params);
  const std::string_view header = headers.version.value_or("");
  message.modern = modern;
  if (!message.modern && !header.empty() && !is_known(header)) throw unknown_version(header);
  const json* token = meta == nullptr ? nullptr : member(*meta, "progressToken");
  if (token != nullptr && !is_token(*token))
    throw RpcError{.code = RpcError::kParams,
                   .message = "`progressToken` must be an integer, or a string of at most " +
                              std::to_string(kMostToken) + " bytes"};
  if (token != nullptr) message.progress_token = *token;
  return message;
}

void check_modern(const RequestHeaders& headers, Message& message) {
  const json* meta = meta_of(message.params);
  const json* version = meta == nullptr ? nullptr : member(*meta, kVersionKey);
  const json* capabilities = meta == nullptr ? nullptr : member(*meta, kCapabilitiesKey);
  if (version == nullptr || !version->is_string() || capabilities == nullptr || !capabilities->is_object())
    throw RpcError{.code = RpcError::kParams,
                   .message = "`params._meta` must have " + std::string(kVersionKey) + " and " +
                              std::string(kCapabilitiesKey)};
  const auto& asked = version->get_ref<const std::string&>();
  check_header(headers.version, kVersionHeader, asked);
  check_header(headers.method, "Mcp-Method", message.method);
  const bool of_a_task = is_task_method(message.method);
  const json* name = message.method == "tools/call" ? member(message.params, "name")
                     : of_a_task                    ? member(message.params, "taskId")
                                                    : nullptr;
  if (name != nullptr && name->is_string())
    check_header(headers.name, "Mcp-Name", name->get_ref<const std::string&>());
  if (asked != kModern) throw unknown_version(asked);
  const json* extensions = member(*capabilities, "extensions");
  message.takes_tasks = extensions != nullptr && member(*extensions, kTasksExtension) != nullptr;
}

std::string response(const std::string& id, std::string_view result) {
  std::string text = R"({"jsonrpc":"2.0","id":)";
  return text.append(id.empty() ? "null" : id).append(R"(,"result":)").append(result).append("}");
}

std::string response(const std::string& id, const RpcError& error) {
  ordered_json body = {{"code", error.code}, {"message", error.message}};
  if (!error.data.is_null()) body["data"] = error.data;
  std::string text = R"({"jsonrpc":"2.0","id":)";
  return text.append(id.empty() ? "null" : id).append(R"(,"error":)").append(json_text(body)).append("}");
}

unsigned status_of(const RpcError& error, bool modern) {
  if (error.code == RpcError::kParse || error.code == RpcError::kRequest) return 400;
  if (!modern) return error.code == RpcError::kVersion ? 400 : 200;
  return error.code == RpcError::kMethod ? 404 : error.code == RpcError::kInternal ? 500 : 400;
}

std::string modern_members(bool list) {
  std::string text = R"("resultType":"complete",)";
  if (list) text += R"("ttlMs":3600000,"cacheScope":"private",)";
  return text +
         R"("_meta":{"io.modelcontextprotocol/serverInfo":{"name":"isogate","version":")" ISOGATE_VERSION
         "\"}},";
}

}  // namespace isogate::front::mcp
