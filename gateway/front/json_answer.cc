#include "gateway/front/json_answer.h"

#include "gateway/front/text.h"

namespace isogate::front {

Task<void> JsonAnswer::write_if_much() {
  if (text.size() < kMuch) co_return;
  if (!exchange_.begun()) co_await exchange_.begin(status_, "application/json", std::nullopt);
  co_await exchange_.write(text);
  text.clear();
}

Task<void> JsonAnswer::string(std::string_view bytes, bool as_text) {
  text += '"';
  while (!bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kPiece);
    bytes.remove_prefix(piece.size());
    if (as_text) {
      append_json_text(text, piece);
    } else {
      append_base64(text, piece);
    }
    co_await write_if_much();
  }
  text += '"';
}

Task<void> JsonAnswer::end() {
  if (!exchange_.begun()) co_return co_await exchange_.send(status_, "application/json", text);
  co_await exchange_.write(text);
  co_await exchange_.finish();
}

}  // namespace isogate::front
