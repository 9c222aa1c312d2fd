// The time of day, for dates that people read: it may jump, and measures nothing. Any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <ctime>
#include <string>

namespace isogate {

// Milliseconds since 1970-01-01 UTC.
inline int64_t wall_clock_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

// "2026-01-31T23:59:59" of the seconds since then: RFC 3339 without a fraction and the zone, which is UTC.
inline std::string utc_text(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm parts{};
  ::gmtime_r(&time, &parts);
  char text[64];
  return {text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts)};
}

// "3 s", or "1500 ms".
inline std::string seconds_text(std::chrono::milliseconds time) {
  return time.count() % 1000 == 0 ? std::to_string(time.count() / 1000) + " s"
                                  : std::to_string(time.count()) + " ms";
}

// "2026-01-31T23:59:59.999Z" of the milliseconds since then, which are not before it.
inline std::string utc_text_of_ms(int64_t ms) {
  return utc_text(ms / 1000) + "." + std::to_string(1000 + ms % 1000).substr(1) + "Z";
}

// The same, counted from this process's start without later jumps, and without the time that the machine
// sleeps: for a date at which something ends. Another process counts differently: on disk and for people it
// is a time of day, which is wall_clock_ahead_ms() later.
inline int64_t steady_date_ms() {
  using std::chrono::steady_clock;
  static const auto began = steady_clock::now();
  static const int64_t date = wall_clock_ms();
  return date + std::chrono::duration_cast<std::chrono::milliseconds>(steady_clock::now() - began).count();
}

// By how much the time of day has gone ahead since then: it was set, or the machine slept.
inline int64_t wall_clock_ahead_ms() { return wall_clock_ms() - steady_date_ms(); }

}  // namespace isogate
