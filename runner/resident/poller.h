// What the main thread waits for: one epoll set. A key says what became ready.
//
// Descriptors of calls are watched for one event at a time: after each they are armed again, or not.
#pragma once

#include <cstdint>
#include <span>

#include "runner/fd.h"

namespace isogate::resident {

class Poller {  // any thread, but wait(): one
 public:
  Result<void> open();

  // Level-triggered, for good.
  Result<void> watch(int fd, uint64_t key);
  // For one event. False: the kernel has no room for it.
  bool arm(int fd, uint64_t key, bool to_write);
  void forget(int fd);
  // Makes wait() return.
  void nudge() { signal_event(nudge_.get()); }

  // The keys that became ready, none when `patience_ms` is over (-1: never) or nudged.
  std::span<const uint64_t> wait(int patience_ms);

 private:
  static constexpr int kMost = 64;
  Fd epoll_, nudge_;
  uint64_t keys_[kMost] = {};
};

}  // namespace isogate::resident
