#include "gateway/front/e2b/envelopes.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "gateway/front/api/json_in.h"
#include "gateway/front/base/api_error.h"

namespace isogate::front::e2b {
namespace asio = boost::asio;
namespace {

using nlohmann::json;

constexpr size_t kEnvelope = 5;
constexpr size_t kRead = 65536;
constexpr char kCompressed = 1;

}  // namespace

std::string envelope(unsigned char flags, std::string_view message) {
  std::string text(1, static_cast<char>(flags));
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>((message.size() >> shift) & 0xFF);
  return text.append(message);
}

MessageReader::MessageReader(ReadBody read, uint64_t most, ByteShare& memory, ParseMessage parse)
    : read_(std::move(read)), most_(most), memory_(memory), parse_(std::move(parse)) {}

asio::awaitable<bool> MessageReader::has(size_t bytes) {
  std::string piece(std::min(bytes - std::min(bytes, kept_.size()), kRead), '\0');
  while (kept_.size() < bytes) {
    const size_t n = co_await read_(piece.data(), std::min(bytes - kept_.size(), piece.size()));
    kept_.append(piece, 0, n);
    memory_.hold(held_ + kept_.size());
    if (n == 0) co_return false;
  }
  co_return true;
}

asio::awaitable<std::optional<json>> MessageReader::next() {
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
  std::string text = std::exchange(kept_, {}).substr(kEnvelope);
  json message = co_await parse_(std::move(text));
  memory_.hold(held_ + kept_bytes(message));
  co_return message;
}

asio::awaitable<json> MessageReader::only() {
  std::optional<json> message = co_await next();
  held_ = message ? kept_bytes(*message) : 0;
  if (!message || co_await next()) throw invalid_request("the stream must hold one message");
  co_return std::move(*message);
}

}  // namespace isogate::front::e2b
