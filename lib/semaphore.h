// A counting semaphore whose waits a descriptor ends, too: for a call that may be cancelled while it waits
// for others. With one place it is a mutex, which std::unique_lock holds. Any thread; a place may be released
// by another thread than took it.
#pragma once

#include <chrono>
#include <cstddef>
#include <mutex>

#include "lib/condition.h"

namespace isogate {

class Semaphore {
 public:
  explicit Semaphore(size_t places = 1) : free_(places) {}

  // Until a place is free. False: `cancel_fd` was readable first (-1: never), or `most` passed.
  [[nodiscard]] bool lock(int cancel_fd, std::chrono::milliseconds most = kForever) {
    const auto until = most == kForever ? Clock::time_point::max() : Clock::now() + most;
    std::unique_lock own(mutex_);
    while (free_ == 0 && !is_signalled(cancel_fd) && Clock::now() < until)
      changed_.wait(own, cancel_fd, left_until(until));
    const bool taken = free_ > 0;
    if (taken) --free_;
    if (free_ > 0) changed_.notify_one();  // it may have been woken in place of another
    return taken;
  }
  void lock() { (void)lock(-1); }
  [[nodiscard]] bool try_lock() { return lock(-1, std::chrono::milliseconds(0)); }

  void unlock() {
    const std::lock_guard own(mutex_);
    ++free_;
    changed_.notify_one();
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kForever = std::chrono::milliseconds::max();
  static std::chrono::milliseconds left_until(Clock::time_point until) {
    if (until == Clock::time_point::max()) return std::chrono::hours(24);
    return std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
  }

  std::mutex mutex_;
  Condition changed_;
  size_t free_;
};

}  // namespace isogate
