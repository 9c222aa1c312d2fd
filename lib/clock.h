// The time of day, for dates that people read: it may jump, and measures nothing. Any thread.
#pragma once

#include <chrono>
#include <cstdint>

namespace isogate {

// Milliseconds since 1970-01-01 UTC.
inline int64_t wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

}  // namespace isogate
