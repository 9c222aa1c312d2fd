// A call with its own time limit. Used by its own thread.
#pragma once

#include <chrono>

#include "isogate/backend.hpp"
#include "lib/fd.h"

namespace isogate {

class BoundedCall {
 public:
  // Cancelled when `most` has passed, or once `cancel_fd` (borrowed; -1: none) is readable.
  explicit BoundedCall(std::chrono::milliseconds most, int cancel_fd = -1);
  // A part of `whole`, which is borrowed: cancelled with it, too, and past its deadline.
  BoundedCall(const sdk::Call& whole, std::chrono::milliseconds most);
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  [[nodiscard]] const sdk::Call& call() const { return call_; }
  // Cancelled because of `most`, not by `whole`.
  [[nodiscard]] bool is_late() const { return call_.cancelled() && (!whole_ || !whole_->cancelled()); }

 private:
  BoundedCall(const sdk::Call* whole, std::chrono::milliseconds most, const isogate_call& abi);

  const sdk::Call* const whole_;
  const Fd timer_, either_;  // `either_` is readable when the timer or the caller's descriptor is
  const isogate_call abi_;
  const sdk::Call call_;
};

}  // namespace isogate
