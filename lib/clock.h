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

// The same as this process began with it, and no jump since: for what ends at a date that is kept on disk.
inline int64_t steady_date_ms() {
  using std::chrono::steady_clock;
  static const auto began = steady_clock::now();
  static const int64_t date = wall_clock_ms();
  return date + std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - began).count();
}

}  // namespace isogate
