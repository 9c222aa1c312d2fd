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

inline std::unique_lock<std::timed_mutex> lock_for(std::timed_mutex& mutex, const sdk::Call& call) {
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(20))) call.check();
  return lock;
}

}  // namespace isogate::k8s
