// Waits that end with their call.
#pragma once

#include <chrono>
#include <mutex>

#include "isogate/backend.hpp"

namespace isogate {

inline constexpr std::chrono::milliseconds kCallLook{20};  // how often the call is checked

// Locks the mutex. Throws ISOGATE_CANCELLED when the call is cancelled first.
inline std::unique_lock<std::timed_mutex> lock_for(std::timed_mutex& mutex, const sdk::Call& call) {
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_for(kCallLook)) call.check();
  return lock;
}

// The same, for one of a std::counting_semaphore, which the caller releases.
template <typename Semaphore>
void acquire_for(Semaphore& semaphore, const sdk::Call& call) {
  while (!semaphore.try_acquire_for(kCallLook)) call.check();
}

}  // namespace isogate
