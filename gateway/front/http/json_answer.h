// JSON responses. Small ones are made as values and sent whole (send_json). Large ones (output, files,
// listings) and those of an exec are appended by hand to a JsonAnswer, which sends them as they are made.
// The front's one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "gateway/front/http/exchange.h"
#include "lib/text.h"

namespace isogate::front {

// Appends a newline. The value is freed before the front waits for a slow client. Its text is claimed in
// exchange.memory (after a write that is done, only beyond 64 KiB): throws ApiError.
enum class Claimed { kAll, kLarge };
Task<void> send_json(Exchange& exchange, nlohmann::ordered_json body, Claimed claimed = Claimed::kLarge);
// `{}`: it is done.
Task<void> send_json(Exchange& exchange);

// The text of a value; bytes in it that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& value);

// Judges bytes of any size in steps (steps.h). They stay valid until it returns.
Task<TextJudge> judge_text(std::string_view bytes);

// A small response is sent whole, with its length. A larger one is sent chunked, and only one part is in
// memory at a time, whatever the reader's speed.
class JsonAnswer {
 public:
  explicit JsonAnswer(Exchange& exchange, unsigned status = 200) : exchange_(exchange), status_(status) {}
  JsonAnswer(const JsonAnswer&) = delete;
  JsonAnswer& operator=(const JsonAnswer&) = delete;

  // Text that is not written yet: append to it; if it may become large, call write_if_much().
  std::string text;
  Task<void> write_if_much();
  // `bytes` as a JSON string: unchanged with `as_text` (they must be UTF-8), else base64.
  Task<void> string(std::string_view bytes, bool as_text);
  Task<void> end();

 private:
  static constexpr size_t kPiece = 12288;  // of a string; whole groups of base64

  Exchange& exchange_;
  unsigned status_;
};

}  // namespace isogate::front
