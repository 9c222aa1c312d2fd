// The Connect protocol (connectrpc.com/docs/protocol) over HTTP/1.1 with JSON, as E2B's SDKs speak it to a
// sandbox: one message, or one message that is answered by a stream of them. The front's one thread.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/e2b/envelopes.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front::e2b {

bool is_rpc(const Route& route);

// Why a stream ends when its sandbox ends, in words that SDKs look for.
ApiError sandbox_is_gone();

// The one message of a request. Unknown members are ignored, as protobuf's JSON requires. Throws ApiError.
Task<nlohmann::json> read_message(App& app, Exchange& exchange);
// The same, in the envelope of a stream.
Task<nlohmann::json> read_first_message(App& app, Exchange& exchange);

MessageReader messages_of(App& app, Exchange& exchange);  // throws ApiError

// The timeout that it asks for; none: it names none. Throws ApiError.
std::optional<std::chrono::milliseconds> rpc_timeout(const Exchange& exchange);
// When that is over; none: in a year. Throws ApiError.
std::chrono::steady_clock::time_point rpc_deadline(const Exchange& exchange);
std::chrono::milliseconds parse_timeout(std::string_view header);
// After how much silence a stream sends a keep-alive.
std::chrono::seconds keepalive_interval(const Exchange& exchange);
std::chrono::seconds parse_keepalive(std::string_view header);

// The answer of a stream.
class MessageStream {
 public:
  explicit MessageStream(Exchange& exchange) : exchange_(exchange) {}
  Task<void> begin();
  Task<void> write(std::string_view message);  // JSON
  Task<void> end();
  // Instead of end().
  Task<void> fail(const ApiError& error);

 private:
  Exchange& exchange_;
};

// A route's handler whose answer is a stream. What refuses it is the stream's last message: with another HTTP
// status SDKs do not read the reason.
template <Task<void> (*handle)(App&, Exchange&)>
Task<void> streaming(App& app, Exchange& exchange) {
  std::optional<ApiError> refusal;
  try {
    co_await handle(app, exchange);
  } catch (const ApiError& error) {
    if (exchange.begun()) throw;
    refusal = error;
  }
  if (!refusal) co_return;
  if (refusal->code == Code::kRateLimited) co_await exchange.hold_back();
  MessageStream stream(exchange);
  co_await stream.begin();
  co_await stream.fail(*refusal);
}

}  // namespace isogate::front::e2b
