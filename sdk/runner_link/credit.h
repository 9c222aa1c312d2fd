// Flow control of one channel, for both ends: ISOGATE_RUNNER_WINDOW bytes to begin with, CREDIT for more.
// Pure: its user locks.
#pragma once

#include <algorithm>
#include <cstdint>

#include "isogate/runner_protocol.h"

namespace isogate::sdk::link {

// A receiver grants credit in pieces of at least so many bytes.
constexpr uint64_t kCreditStep = ISOGATE_RUNNER_WINDOW / 4;

// The sender's end.
class SendCredit {
 public:
  // What CREDIT brought. False: more than any receiver has room for.
  [[nodiscard]] bool add(uint64_t bytes) {
    bytes_ += bytes;
    return bytes_ <= uint64_t{1} << 40;
  }
  // Up to `most` bytes, which are used up; 0: none now.
  uint64_t take(uint64_t most) {
    const uint64_t taken = std::min(bytes_, most);
    bytes_ -= taken;
    return taken;
  }
  void give_back(uint64_t bytes) { bytes_ += bytes; }
  [[nodiscard]] uint64_t left() const { return bytes_; }

 private:
  uint64_t bytes_ = ISOGATE_RUNNER_WINDOW;
};

// The receiver's end.
class ReceiveWindow {
 public:
  // Bytes that came. False: more than there was credit for.
  [[nodiscard]] bool accept(uint64_t bytes) {
    if (bytes > allowed_) return false;
    allowed_ -= bytes;
    return true;
  }
  // Bytes that are passed on and need no room any more.
  void consume(uint64_t bytes) { owed_ += bytes; }
  [[nodiscard]] bool is_due() const { return owed_ >= kCreditStep; }
  // The credit to send now; 0: it is not due. While the receiver keeps up the window grows, up to
  // ISOGATE_RUNNER_WIDEST.
  uint32_t grant(bool keeps_up) {
    if (!is_due()) return 0;
    const uint64_t more = keeps_up ? std::min(owed_, ISOGATE_RUNNER_WIDEST - window_) : 0;
    const uint64_t granted = owed_ + more;
    window_ += more;
    owed_ = 0;
    allowed_ += granted;
    return static_cast<uint32_t>(granted);
  }

 private:
  uint64_t allowed_ = ISOGATE_RUNNER_WINDOW, window_ = ISOGATE_RUNNER_WINDOW, owed_ = 0;
};

}  // namespace isogate::sdk::link
