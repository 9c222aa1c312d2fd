// When to restart a crashed process, and when to stop trying.
#pragma once

#include <chrono>
#include <deque>
#include <optional>

#include "gateway/supervisor/supervisor.h"

namespace isogate::supervisor {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;

class RestartPolicy {
 public:
  explicit RestartPolicy(const SupervisorTimings& timings) : timings_(timings) {}

  // Records a crash. Returns how long to wait before the next start: doubling with each crash within
  // the window; nullopt: the limit is reached, do not start it again. `never_probed`: of a backend host that
  // answered no probe, which shows only after a while, so that these count in a window of their own, too.
  std::optional<std::chrono::milliseconds> crashed(TimePoint now, bool never_probed = false);
  void forget() {
    crashes_.clear();
    never_probed_.clear();
  }

 private:
  SupervisorTimings timings_;
  std::deque<TimePoint> crashes_, never_probed_;
};

}  // namespace isogate::supervisor
