#include "exchange.h"

#include <algorithm>
#include <cstring>

namespace isogate::sdk::link {

size_t Exchange::room() const { return ISOGATE_RUNNER_KEPT - std::min<size_t>(kept(), ISOGATE_RUNNER_KEPT); }

bool Exchange::has_more() const {
  if (wire_done_ < wire_.size()) return true;
  if (goodbye_added_) return !goodbye_sent_;
  return sent_ < acknowledged_ + kept() || received_ - received_reported_ >= ISOGATE_RUNNER_ACK_EVERY;
}

std::string_view Exchange::next() {
  if (wire_done_ == wire_.size()) {
    wire_.clear();
    wire_done_ = 0;
    if (!has_more()) return {};
    isogate_runner_chunk head{0, 0, received_};
    const size_t from = gone_ + static_cast<size_t>(sent_ - acknowledged_);
    if (goodbye_added_) {
      head.flags = ISOGATE_RUNNER_GOODBYE;
      goodbye_sent_ = true;
    } else {
      head.size = static_cast<uint32_t>(std::min<size_t>(kept_.size() - from, ISOGATE_RUNNER_MAX_CHUNK));
    }
    wire_.append(reinterpret_cast<const char*>(&head), sizeof head);
    wire_.append(kept_, from, head.size);
    sent_ += head.size;
    received_reported_ = received_;
  }
  return std::string_view(wire_).substr(wire_done_);
}

size_t Exchange::receive(std::span<char> bytes) {
  size_t at = 0, left = 0;
  while (at < bytes.size() && !over_ && fault_ == nullptr) {
    if (payload_left_ > 0) {
      const size_t size = std::min(payload_left_, bytes.size() - at);
      std::memmove(bytes.data() + left, bytes.data() + at, size);
      at += size;
      left += size;
      payload_left_ -= size;
      continue;
    }
    const size_t size = std::min(head_.size() - head_size_, bytes.size() - at);
    std::memcpy(head_.data() + head_size_, bytes.data() + at, size);
    at += size;
    head_size_ += size;
    if (head_size_ == head_.size() && !take_head()) break;
  }
  received_ += left;
  return left;
}

bool Exchange::take_head() {
  isogate_runner_chunk head;
  std::memcpy(&head, head_.data(), sizeof head);
  head_size_ = 0;
  if (head.size > ISOGATE_RUNNER_MAX_CHUNK) fault_ = "a chunk that is too large";
  if ((head.flags & ~ISOGATE_RUNNER_GOODBYE) != 0) fault_ = "a chunk with unknown flags";
  if (head.flags != 0 && head.size != 0) fault_ = "a goodbye with bytes";
  if (head.received < acknowledged_ || head.received > sent_)
    fault_ = "an acknowledgement of what was not sent";
  if (fault_ != nullptr) return false;
  forget(head.received);
  payload_left_ = head.size;
  over_ = head.flags != 0;
  return true;
}

void Exchange::forget(uint64_t received) {
  gone_ += static_cast<size_t>(received - acknowledged_);
  acknowledged_ = received;
  if (gone_ == kept_.size()) {
    if (kept_.capacity() > ISOGATE_RUNNER_KEPT / 4) kept_ = {};
    kept_.clear();
    gone_ = 0;
  } else if (gone_ >= ISOGATE_RUNNER_KEPT / 2) {
    kept_.erase(0, gone_);
    gone_ = 0;
  }
}

bool Exchange::resume(uint64_t received) {
  if (!can_resume(received)) return false;
  most_sent_ = std::max(sent_, most_sent_);
  forget(received);
  sent_ = received;
  wire_.clear();
  wire_done_ = 0;
  head_size_ = payload_left_ = 0;
  received_reported_ = received_;
  return true;
}

}  // namespace isogate::sdk::link
