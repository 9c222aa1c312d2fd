// Waits that end with their call.
#pragma once

#include <chrono>
#include <mutex>

#include "isogate/backend.hpp"
#include "lib/semaphore.h"

namespace isogate {

// Takes a place. Throws ISOGATE_CANCELLED when the call is cancelled first.
inline std::unique_lock<Semaphore> lock_for(Semaphore& semaphore, const sdk::Call& call) {
  if (!semaphore.lock(call.cancel_fd())) throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
  return {semaphore, std::adopt_lock};
}

// Throws ISOGATE_CANCELLED when the call is cancelled first.
inline void sleep_for(std::chrono::milliseconds time, const sdk::Call& call) {
  if (is_signalled(call.cancel_fd(), time)) throw sdk::Error(ISOGATE_CANCELLED, "cancelled");
}

}  // namespace isogate
