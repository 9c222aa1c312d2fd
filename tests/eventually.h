// How tests wait. On a busy machine a second of the clock holds less than a second of work: a wait ends when
// the time has passed and the condition was checked as often as on an idle machine, or after four times as
// long.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace isogate::test {

// Seconds that have passed.
inline double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline bool eventually(double seconds, const std::function<bool()>& holds) {
  constexpr double kPause = 0.005;
  const auto start = std::chrono::steady_clock::now();
  for (double looked = 0; !holds(); looked += kPause) {
    const double passed = since(start);
    if (passed > 4 * seconds || (passed > seconds && looked >= seconds)) return holds();
    std::this_thread::sleep_for(std::chrono::duration<double>(kPause));
  }
  return true;
}

}  // namespace isogate::test
