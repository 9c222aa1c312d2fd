#include "gateway/front/http/json_answer.h"

#include <nlohmann/json.hpp>

#include "gateway/front/base/steps.h"

namespace isogate::front {
namespace {

constexpr size_t kMuch = 65536;

}  // namespace

std::string json_text(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Task<void> send_json(Exchange& exchange, nlohmann::ordered_json body, Claimed claimed) {
  const std::string text = json_text(body) + "\n";
  body = nullptr;
  if (claimed == Claimed::kAll || text.size() > kMuch) exchange.memory.add(text.size());
  co_await exchange.send(200, "application/json", text);
}

Task<void> send_json(Exchange& exchange) { co_await exchange.send(200, "application/json", "{}\n"); }

Task<TextJudge> judge_text(std::string_view bytes) {
  constexpr size_t kStep = 256 * 1024;
  TextJudge judge;
  for (; bytes.size() > kStep; bytes.remove_prefix(kStep)) {
    judge.add(bytes.substr(0, kStep));
    co_await let_others();
  }
  judge.add(bytes);
  co_return judge;
}

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
