#include "gateway/front/http/cors.h"

#include "gateway/front/base/api_error.h"

namespace isogate::front {
namespace {

constexpr const char* kMethods = "GET, HEAD, POST, PUT, DELETE";
constexpr const char* kHeaders =
    "Authorization, Content-Type, If-Range, Range, X-Agent-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name";
constexpr const char* kMaxAgeSec = "600";

}  // namespace

void look_at_origin(Exchange& exchange, const std::vector<std::string>& listed) {
  const std::string_view origin = exchange.header("Origin");
  exchange.cors_origin = !origin.empty() && origin_allowed(origin, {}, listed) ? origin : std::string_view{};
}

bool is_preflight(const Exchange& exchange) {
  return !exchange.header("Origin").empty() && !exchange.header("Access-Control-Request-Method").empty();
}

Task<void> answer_preflight(Exchange& exchange) {
  if (exchange.cors_origin.empty()) {
    throw ApiError{
        .code = Code::kPermissionDenied,
        .message = "pages of this origin may not call the gateway; `cors.origins` lists those that may"};
  }
  Headers permission{{"Access-Control-Allow-Methods", kMethods},
                     {"Access-Control-Allow-Headers", kHeaders},
                     {"Access-Control-Max-Age", kMaxAgeSec}};
  if (exchange.header("Access-Control-Request-Private-Network") == "true")
    permission.emplace_back("Access-Control-Allow-Private-Network", "true");
  co_await exchange.send(204, {}, {}, permission);
}

}  // namespace isogate::front
