#include "gateway/front/e2b/rpc.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "gateway/front/api/json_in.h"
#include "gateway/front/base/api_error.h"
#include "gateway/front/http/http_text.h"
#include "gateway/front/http/json_answer.h"

namespace isogate::front::e2b {
namespace {

using nlohmann::json;

constexpr std::string_view kMessage = "application/json", kStream = "application/connect+json";
constexpr size_t kEnvelope = 5;
constexpr size_t kRead = 65536;
constexpr char kCompressed = 1;
constexpr unsigned char kEndOfStream = 2;
constexpr std::chrono::seconds kKeepalive{90}, kLeastKeepalive{1};

std::string_view media_type(const Exchange& exchange) {
  std::string_view type = exchange.header("Content-Type");
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ')) type.remove_suffix(1);
  return type;
}

void require_type(const Exchange& exchange, std::string_view type) {
  if (equal_no_case(media_type(exchange), type)) return;
  throw ApiError{.code = Code::kUnsupportedMediaType,
                 .message = "send the message as Content-Type: " + std::string(type)};
}

std::string envelope(unsigned char flags, std::string_view message) {
  std::string text(1, static_cast<char>(flags));
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>((message.size() >> shift) & 0xFF);
  return text.append(message);
}

json parsed(Exchange& exchange, std::string_view text) {
  json message = parse_body(text, kAnyField);
  exchange.memory.hold(kept_bytes(message));
  return message;
}

std::optional<uint64_t> number_in(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

RpcCode rpc_code(const ApiError& error) {
  switch (error.code) {
    case Code::kInvalidRequest:
    case Code::kIsDirectory:
    case Code::kRangeNotSatisfiable:
    case Code::kMisdirectedRequest:
      return {"invalid_argument", 400};
    case Code::kUnauthenticated:
      return {"unauthenticated", 401};
    case Code::kPermissionDenied:
      return {"permission_denied", 403};
    case Code::kFileNotFound:
    case Code::kSandboxNotFound:
    case Code::kExecNotFound:
    case Code::kExecEnded:
    case Code::kNotFound:
      return {"not_found", 404};
    case Code::kMethodNotAllowed:
    case Code::kUnsupported:
      return {"unimplemented", 501};
    case Code::kAlreadyExists:
      return {"already_exists", 409};
    case Code::kFileBusy:
    case Code::kAlreadyAttached:
    case Code::kSandboxLost:
      return {"aborted", 409};
    case Code::kOutputDropped:
      return {"data_loss", 500};
    case Code::kFileTooLarge:
    case Code::kRateLimited:
    case Code::kQuotaExceeded:
      return {"resource_exhausted", 429};
    case Code::kUnsupportedMediaType:
      return {"invalid_argument", 415};
    case Code::kRequestTimeout:
      return {"deadline_exceeded", 504};
    case Code::kPortClosed:
    case Code::kBackendUnavailable:
    case Code::kDraining:
      return {"unavailable", 503};
    case Code::kOutcomeUnknown:
      return {"unknown", 500};
    case Code::kInternal:
      break;
  }
  return {"internal", 500};
}

bool is_rpc(const Route& route) {
  return route.path.starts_with("/process.") || route.path.starts_with("/filesystem.");
}

Task<json> read_message(App& app, Exchange& exchange) {
  require_type(exchange, kMessage);
  const std::string text = co_await exchange.read_body(app.config.limits.max_json_bytes);
  co_return parsed(exchange, text);
}

Task<json> read_first_message(App& app, Exchange& exchange) {
  MessageReader messages(app, exchange);
  std::optional<json> message = co_await messages.next();
  if (!message || co_await messages.next()) throw invalid_request("the stream must hold one message");
  co_return std::move(*message);
}

MessageReader::MessageReader(App& app, Exchange& exchange)
    : exchange_(exchange), most_(app.config.limits.max_json_bytes) {
  require_type(exchange, kStream);
}

Task<bool> MessageReader::has(size_t bytes) {
  while (kept_.size() < bytes) {
    const size_t size = kept_.size();
    kept_.resize(size + std::min<size_t>(bytes - size, kRead));
    size_t n = 0;
    try {
      n = co_await exchange_.read_body_some(kept_.data() + size, kept_.size() - size);
    } catch (...) {
      kept_.resize(size);
      throw;
    }
    kept_.resize(size + n);
    exchange_.memory.hold(kept_.size());
    if (n == 0) co_return false;
  }
  co_return true;
}

Task<std::optional<json>> MessageReader::next() {
  if (!co_await has(kEnvelope)) {
    if (!kept_.empty()) throw invalid_request("the stream ends in the middle of an envelope");
    co_return std::nullopt;
  }
  uint64_t size = 0;
  for (size_t i = 1; i < kEnvelope; ++i) size = size << 8 | static_cast<unsigned char>(kept_[i]);
  if (kept_[0] == kCompressed)
    throw ApiError{.code = Code::kUnsupported, .message = "send messages without compression"};
  if (kept_[0] != 0) throw invalid_request("an envelope of the stream has flags that are not known");
  if (size > most_)
    throw ApiError{
        .code = Code::kFileTooLarge,
        .message = "a message is over " + std::to_string(most_) + " bytes (limits.max_json_bytes)"};
  if (!co_await has(kEnvelope + size)) throw invalid_request("the stream ends in the middle of a message");
  const std::string text = std::exchange(kept_, {}).substr(kEnvelope);
  co_return parsed(exchange_, text);
}

Task<void> send_message(Exchange& exchange, const nlohmann::ordered_json& message) {
  const std::string text = json_text(message);
  exchange.memory.add(text.size());
  co_await exchange.send(200, kMessage, text);
}

std::optional<std::chrono::milliseconds> rpc_timeout(const Exchange& exchange) {
  if (!exchange.has_header("Connect-Timeout-Ms")) return std::nullopt;
  std::string_view text = exchange.header("Connect-Timeout-Ms");
  text = text.substr(0, text.find('.'));  // some SDKs send a fraction
  const auto value = number_in(text);
  constexpr uint64_t kMost = 9999999999;  // ten digits, as the protocol says
  if (!value || *value > kMost)
    throw invalid_request("Connect-Timeout-Ms must be a number of at most ten digits");
  return std::chrono::milliseconds(*value);
}

std::chrono::seconds keepalive_interval(const Exchange& exchange) {
  const auto value = number_in(exchange.header("Keepalive-Ping-Interval"));
  if (!value || *value == 0) return kKeepalive;
  return std::clamp(std::chrono::seconds(std::min<uint64_t>(*value, 3600)), kLeastKeepalive, kKeepalive);
}

Task<void> MessageStream::begin() { co_await exchange_.begin(200, kStream, std::nullopt); }

Task<void> MessageStream::write(std::string_view message) { co_await exchange_.write(envelope(0, message)); }

Task<void> MessageStream::end() {
  co_await exchange_.write(envelope(kEndOfStream, "{}"));
  co_await exchange_.finish();
}

Task<void> MessageStream::fail(const ApiError& error) {
  const nlohmann::ordered_json last = {
      {"error", {{"code", rpc_code(error).text}, {"message", error.message}}}};
  co_await exchange_.write(envelope(kEndOfStream, json_text(last)));
  co_await exchange_.finish();
}

Task<void> MessageStream::refuse(Exchange& exchange, const ApiError& error) {
  MessageStream stream(exchange);
  co_await stream.begin();
  co_await stream.fail(error);
}

ApiError sandbox_is_gone() {
  return {.code = Code::kBackendUnavailable,
          .message = "The sandbox was killed or reached its end of life while the request was in flight"};
}

}  // namespace isogate::front::e2b
