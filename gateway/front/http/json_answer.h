// JSON answers. Small ones are made as values and sent whole (send_json). What may be large (output, files,
// listings) or is on an exec's way is appended by hand to a JsonAnswer, which sends it as it is made. The
// front's one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

// With a newline behind it. The value is gone before a slow client is waited for. Its text is claimed in
// exchange.memory, of a write that is done only beyond 64 KiB: throws ApiError.
enum class Claimed { kAll, kLarge };
Task<void> send_json(Exchange& exchange, nlohmann::ordered_json body, Claimed claimed = Claimed::kLarge);
// `{}`: it is done.
Task<void> send_json(Exchange& exchange);

// The text of a value; bytes in it that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);

// A small answer goes out whole, with its length; of a larger one a part is kept at a time, chunked, so that
// a slow reader costs no more than that.
class JsonAnswer {
 public:
  explicit JsonAnswer(Exchange& exchange, unsigned status = 200) : exchange_(exchange), status_(status) {}
  JsonAnswer(const JsonAnswer&) = delete;
  JsonAnswer& operator=(const JsonAnswer&) = delete;

  // What is not written yet: append to it, and where that may become much, write_if_much().
  std::string text;
  Task<void> write_if_much();
  // `bytes` as a JSON string: themselves where `as_text` (they must be UTF-8), else base64.
  Task<void> string(std::string_view bytes, bool as_text);
  Task<void> end();

 private:
  static constexpr size_t kPiece = 12288;  // of a string; whole groups of base64

  Exchange& exchange_;
  unsigned status_;
};

}  // namespace isogate::front
