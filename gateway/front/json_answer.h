// A JSON answer that goes out as it is made: a small one whole, with its length; of a larger one a part is
// kept at a time, chunked, so that a slow reader costs no more than that. The front's one thread.
#pragma once

#include <string>
#include <string_view>

#include "gateway/front/exchange.h"

namespace isogate::front {

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
  static constexpr size_t kMuch = 65536;
  static constexpr size_t kPiece = 12288;  // of a string; whole groups of base64

  Exchange& exchange_;
  unsigned status_;
};

}  // namespace isogate::front
