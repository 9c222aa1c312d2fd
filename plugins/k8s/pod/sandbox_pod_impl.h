// Shared by the sources of SandboxPod. For them alone.
#pragma once

#include <chrono>
#include <mutex>
#include <string>

#include "plugins/k8s/pod/measured_pod.h"
#include "plugins/k8s/pod/sandbox_pod.h"

namespace isogate::k8s {

[[noreturn]] inline void unavailable(const std::string& why) { throw sdk::Error(ISOGATE_UNAVAILABLE, why); }

inline std::string who_is_at_work(const std::string& holder) {
  return holder.empty() ? "another gateway that was at work on it"
                        : "the gateway " + holder + ", which is at work on it";
}

[[noreturn]] inline void busy(const std::string& holder) {
  unavailable("another gateway is at work on this sandbox" +
              (holder.empty() ? std::string() : ", " + holder) + ": try again");
}

[[noreturn]] inline void being_closed() {
  throw sdk::Error(ISOGATE_NO_SANDBOX, "this sandbox is being closed: nothing but its close may follow");
}

[[noreturn]] inline void lost() {
  throw sdk::Error(ISOGATE_SANDBOX_LOST,
                   "the workspace of this sandbox is gone; DELETE the sandbox to begin with an empty one");
}

// The time limit of a removal after a failure: the rest expires, or the next call removes it.
inline isogate_call cleaning_up() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(6);
  return {sizeof(isogate_call), -1, std::chrono::nanoseconds(until.time_since_epoch()).count(), {}};
}

}  // namespace isogate::k8s
