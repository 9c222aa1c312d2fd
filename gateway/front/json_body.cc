#include "gateway/front/json_body.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "gateway/front/api_error.h"
#include "gateway/front/handlers.h"
#include "gateway/front/json_in.h"
#include "gateway/front/router.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace {

constexpr size_t kLarge = 256 * 1024;

ApiError invalid_field(std::string_view name, const char* why) {
  return {.code = Code::kInvalidRequest, .message = "`" + std::string(name) + "` " + why};
}

// Until it is done, or the client is gone.
Task<void> elsewhere(App& app, Exchange& exchange, std::function<void()> work) {
  const auto killer = std::make_shared<Killer>();
  exchange.on_gone([killer] { killer->kill(); });
  co_await app.elsewhere.run(exchange.principal.tenant, killer, std::move(work));
  exchange.on_gone({});
}

}  // namespace

Task<nlohmann::json> read_json_body(App& app, Exchange& exchange, uint64_t cap) {
  require_json(exchange);
  std::string text = co_await exchange.read_body(cap);
  const auto fields = row_of(exchange.route).fields;
  const auto body = std::make_shared<nlohmann::json>();
  const auto kept = std::make_shared<uint64_t>(0);
  const bool large = text.size() >= kLarge;
  std::function<void()> parse = [body, kept, text = std::move(text), fields] {
    *body = parse_body(text, fields);
    *kept = kept_bytes(*body);
  };
  if (large) {
    co_await elsewhere(app, exchange, std::move(parse));
  } else {
    parse();
    parse = {};
  }
  exchange.memory.hold(*kept);
  co_return std::move(*body);
}

Task<std::string> decode_field(App& app, Exchange& exchange, std::string_view name, std::string text,
                               std::string_view encoding) {
  if (encoding != "base64") co_return text;
  const bool large = text.size() >= kLarge;
  const auto bytes = std::make_shared<std::optional<std::string>>();
  std::function<void()> decode = [bytes, text = std::move(text)] { *bytes = base64_decode(text); };
  if (large) {
    co_await elsewhere(app, exchange, std::move(decode));
  } else {
    decode();
  }
  if (!*bytes) throw invalid_field(name, "is not valid base64");
  co_return std::move(**bytes);
}

}  // namespace isogate::front
