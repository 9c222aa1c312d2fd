// What the main thread waits for: one epoll set. A key names what became ready.
//
// Descriptors of calls are watched for one event at a time: after each they are armed again, or not.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "lib/fd.h"

namespace isogate::agent {

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
  // Makes wait() return this key.
  void post(uint64_t key);

  // The keys that became ready, none when `patience_ms` is over (-1: never) or nudged.
  const std::vector<uint64_t>& wait(int patience_ms);

 private:
  void take_posted();

  Fd epoll_, nudge_;
  std::vector<uint64_t> keys_;
  std::mutex mutex_;
  std::vector<uint64_t> posted_;
};

}  // namespace isogate::agent
