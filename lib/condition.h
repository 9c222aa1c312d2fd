// A condition variable whose waits a descriptor ends, too: for a call that may be cancelled while it waits
// for another thread. Any thread.
#pragma once

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <list>
#include <mutex>

#include "lib/fd.h"

namespace isogate {

class Condition {
 public:
  // With the mutex held that the waits release.
  void notify_all() {
    for (const int each : waiting_)
      if (each >= 0) signal_event(each);
  }
  // One that waits, the longest first. It may be woken twice in place of two: it tells another.
  void notify_one() {
    for (const int each : waiting_)
      if (each >= 0) return signal_event(each);
  }

  // Releases `lock` and waits until notify_all(), until `cancel_fd` is readable (-1: never), or for `most`.
  // It may return early: check again, and whether the call is cancelled.
  void wait(std::unique_lock<std::mutex>& lock, int cancel_fd,
            std::chrono::milliseconds most = std::chrono::hours(24)) {
    const auto made = make_event();
    const int event = made ? made->get() : -1;
    if (!made) most = std::min(most, kWithoutEvent);
    const auto here = waiting_.insert(waiting_.end(), event);
    lock.unlock();
    pollfd watch[2] = {{event, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
    ::poll(watch, 2, static_cast<int>(std::max<int64_t>(most.count(), 0)));
    lock.lock();
    waiting_.erase(here);
  }

 private:
  static constexpr std::chrono::milliseconds kWithoutEvent{20};  // no descriptor is left

  std::list<int> waiting_;  // the events of those that wait, or -1
};

}  // namespace isogate
