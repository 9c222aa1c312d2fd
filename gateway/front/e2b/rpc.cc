#include "gateway/front/e2b/rpc.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/http/json_answer.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

using nlohmann::json;

constexpr std::string_view kMessage = "application/json", kStream = "application/connect+json";
constexpr std::chrono::seconds kKeepalive{90}, kLeastKeepalive{1};

}  // namespace

bool is_rpc(const Route& route) {
  return route.path.starts_with("/process.") || route.path.starts_with("/filesystem.");
}

Task<json> read_message(App& app, Exchange& exchange) {
  require_type(exchange, kMessage);
  std::string text = co_await exchange.read_body(app.config.limits.max_json_bytes);
  co_return co_await parse_text(app.elsewhere, exchange, std::move(text), kAnyField);
}

Task<json> read_first_message(App& app, Exchange& exchange) {
  MessageReader messages = messages_of(app, exchange);
  co_return co_await messages.only();
}

MessageReader messages_of(App& app, Exchange& exchange) {
  require_type(exchange, kStream);
  return {[&exchange](char* data, size_t size) { return exchange.read_body_some(data, size); },
          app.config.limits.max_json_bytes, exchange.memory,
          [&app, &exchange](std::string text) {
            return parse_text(app.elsewhere, exchange, std::move(text), kAnyField);
          }};
}

std::optional<std::chrono::milliseconds> rpc_timeout(const Exchange& exchange) {
  if (!exchange.has_header("Connect-Timeout-Ms")) return std::nullopt;
  return parse_timeout(exchange.header("Connect-Timeout-Ms"));
}

std::chrono::steady_clock::time_point rpc_deadline(const Exchange& exchange) {
  return std::chrono::steady_clock::now() + rpc_timeout(exchange).value_or(std::chrono::hours(24 * 365));
}

std::chrono::milliseconds parse_timeout(std::string_view header) {
  const auto value = number_in<uint64_t>(header.substr(0, header.find('.')));  // some SDKs send a fraction
  constexpr uint64_t kMost = 9999999999;  // ten digits, as the protocol says
  if (!value || *value > kMost)
    throw invalid_request("Connect-Timeout-Ms must be a number of at most ten digits");
  return std::chrono::milliseconds(*value);
}

std::chrono::seconds keepalive_interval(const Exchange& exchange) {
  return parse_keepalive(exchange.header("Keepalive-Ping-Interval"));
}

std::chrono::seconds parse_keepalive(std::string_view header) {
  const auto value = number_in<uint64_t>(header);
  if (!value || *value == 0) return kKeepalive;
  return std::clamp(std::chrono::seconds(std::min<uint64_t>(*value, 3600)), kLeastKeepalive, kKeepalive);
}

Task<void> MessageStream::begin() { co_await exchange_.begin_stream(kStream); }

Task<void> MessageStream::write(std::string_view message) { co_await exchange_.write(envelope(0, message)); }

Task<void> MessageStream::end() {
  co_await exchange_.write(envelope(kEndOfStream, "{}"));
  co_await exchange_.finish();
}

Task<void> MessageStream::fail(const ApiError& error) {
  exchange_.note(error);
  const nlohmann::ordered_json last = {
      {"error", {{"code", rpc_code(error).text}, {"message", error.message}}}};
  co_await exchange_.write(envelope(kEndOfStream, json_text(last)));
  co_await exchange_.finish();
}

ApiError sandbox_is_gone() {
  return {.code = Code::kBackendUnavailable,
          .message =
              "The sandbox was not found: it was killed or reached its end of life while the request was "
              "in flight"};
}

}  // namespace isogate::front::e2b
