// A message of an MCP client with its headers, and what grep printed of a tenant's files.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/mcp/matches.h"
#include "gateway/front/mcp/rpc.h"
#include "lib/text.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate::front;
using namespace isogate::front::mcp;
using nlohmann::json;

// A refusal is a complete response with the same id.
void check_refusal(const std::string& id, const RpcError& error, bool modern) {
  const json answer = json::parse(response(id, error));
  require(answer["jsonrpc"] == "2.0" && answer.size() == 3);
  require(answer["id"] == (id.empty() ? json() : json::parse(id)));
  require(answer["error"]["code"] == error.code && answer["error"]["message"].is_string());
  const unsigned status = status_of(error, modern);
  require(status == 200 || status == 400 || status == 404 || status == 500);
}

void check_message(const RequestHeaders& headers, const json& body) {
  const bool modern = is_modern(headers, body);
  std::string id;
  try {
    auto message = message_in(headers, body, id);
    if (!message) return require(!body.contains("method"));
    require(json(message->method) == body["method"] && message->id == id && message->modern == modern);
    require(message->params.is_object());
    require(id.empty() != body.contains("id"));
    if (message->modern) check_modern(headers, *message);
    require(!message->modern || (headers.version == kModern && headers.method == message->method));
    require(!message->takes_tasks || message->modern);
    require(json::accept(response(id, "{" + modern_members(true) + "\"tools\":[]}")));
  } catch (const RpcError& error) {
    check_refusal(id, error, modern);
  }
}

void check_matches(std::string_view output, uint64_t limit) {
  const ToolResult result = matches_in(output, limit, false);
  const json structured = json::parse(result.structured);
  require(structured["matches"].size() <= limit);
  for (const json& each : structured["matches"])
    require(each["path"].is_string() && each["line"].is_number_unsigned() && each["text"].is_string());
  require(isogate::is_utf8(result.text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.empty()) return 0;
  const auto flags = static_cast<unsigned char>(input.front());
  input.remove_prefix(1);
  if ((flags & 1) != 0) {
    check_matches(input, flags >> 1);
    return 0;
  }
  // Three lines of headers, each present or not, before the body.
  RequestHeaders headers;
  for (auto* each : {&headers.version, &headers.method, &headers.name}) {
    const std::string_view line = input.substr(0, input.find('\n'));
    input.remove_prefix(std::min(input.size(), line.size() + 1));
    if (line != "-") *each = line;
  }
  json body;
  try {
    body = parse_body(input, kAnyValue);
  } catch (const ApiError&) {
    return 0;
  }
  if (!body.is_array()) {
    check_message(headers, body);
  } else {
    for (const json& each : body) check_message(headers, each);
  }
  return 0;
}
