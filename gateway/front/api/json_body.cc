#include "gateway/front/api/json_body.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/http/http_text.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

constexpr size_t kLarge = 256 * 1024;

// On the other thread, if there are many bytes to work on.
Task<void> work_on(size_t bytes, Elsewhere& elsewhere, Exchange& exchange, std::function<void()> work) {
  if (bytes < kLarge) co_return work();
  co_await elsewhere.run(exchange.principal.tenant, exchange.watch_client(), std::move(work));
}

}  // namespace

void require_type(const Exchange& exchange, std::string_view type) {
  const std::string_view given = exchange.header("Content-Type");
  if (equal_no_case(trimmed(given.substr(0, given.find(';'))), type)) return;
  throw ApiError{.code = Code::kUnsupportedMediaType,
                 .message = "send the body as Content-Type: " + std::string(type)};
}

Task<nlohmann::json> read_json_body(Elsewhere& elsewhere, Exchange& exchange, uint64_t cap) {
  require_type(exchange, "application/json");
  co_return co_await parse_text(elsewhere, exchange, co_await exchange.read_body(cap),
                                exchange.route->fields);
}

Task<nlohmann::json> parse_text(Elsewhere& elsewhere, Exchange& exchange, std::string text,
                                std::span<const std::string_view> fields) {
  const auto body = std::make_shared<nlohmann::json>();
  const auto kept = std::make_shared<uint64_t>(0);
  const size_t size = text.size();
  std::function<void()> parse = [body, kept, text = std::move(text), fields] {
    *body = parse_body(text, fields);
    *kept = kept_bytes(*body);
  };
  co_await work_on(size, elsewhere, exchange, std::move(parse));
  exchange.memory.hold(*kept);
  co_return std::move(*body);
}

Task<std::string> decode_field(Elsewhere& elsewhere, Exchange& exchange, std::string_view name,
                               std::string text, std::string_view encoding) {
  if (encoding != "base64") co_return text;
  const size_t size = text.size();
  const auto bytes = std::make_shared<std::optional<std::string>>();
  std::function<void()> decode = [bytes, text = std::move(text)] { *bytes = base64_decode(text); };
  co_await work_on(size, elsewhere, exchange, std::move(decode));
  if (!*bytes) throw invalid_request("`" + std::string(name) + "` is not valid base64");
  co_return std::move(**bytes);
}

}  // namespace isogate::front
