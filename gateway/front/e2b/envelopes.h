// The envelopes of a Connect stream (connectrpc.com/docs/protocol): a byte of flags, a length in four bytes,
// and a message, here JSON. One thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/base/byte_budget.h"
#include "gateway/front/e2b/gunzip.h"

namespace isogate::front::e2b {

inline constexpr unsigned char kEndOfStream = 2;  // a flag

std::string envelope(unsigned char flags, std::string_view message);

// Parses a message, as parse_body() does; a large one must not block the thread.
using ParseMessage = std::function<boost::asio::awaitable<nlohmann::json>(std::string text)>;

// The messages of a stream, one after the other, each of at most `most` bytes; `memory` holds the last.
class MessageReader {
 public:
  MessageReader(ReadBody read, uint64_t most, ByteShare& memory, ParseMessage parse);
  // nullopt: there are no more. Throws ApiError.
  boost::asio::awaitable<std::optional<nlohmann::json>> next();
  // Of a stream that holds one. Throws ApiError.
  boost::asio::awaitable<nlohmann::json> only();

 private:
  boost::asio::awaitable<bool> has(size_t bytes);

  const ReadBody read_;
  const uint64_t most_;
  ByteShare& memory_;
  const ParseMessage parse_;
  std::string kept_;
  uint64_t held_ = 0;  // for messages before
};

}  // namespace isogate::front::e2b
