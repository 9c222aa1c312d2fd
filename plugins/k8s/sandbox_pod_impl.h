// What the sources of SandboxPod share. For them alone.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "plugins/k8s/sandbox_pod.h"

namespace isogate::k8s {

[[noreturn]] inline void unavailable(const std::string& why) { throw sdk::Error(ISOGATE_UNAVAILABLE, why); }

[[noreturn]] inline void at_work() { unavailable("another gateway is at work on this sandbox: try again"); }

[[noreturn]] inline void lost() {
  throw sdk::Error(ISOGATE_SANDBOX_LOST,
                   "the workspace of this sandbox is gone; DELETE the sandbox to begin with an empty one");
}

// What is removed after a failure takes no longer: the rest expires, or is the next call's.
inline isogate_call cleaning_up() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  return {sizeof(isogate_call), -1, std::chrono::nanoseconds(until.time_since_epoch()).count(), {}};
}

inline std::unique_lock<std::timed_mutex> lock_for(std::timed_mutex& mutex, const sdk::Call& call) {
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(20))) call.check();
  return lock;
}

}  // namespace isogate::k8s
