#include "gateway/supervisor/backends/restart_policy.h"

#include <algorithm>

namespace isogate::supervisor {

std::optional<std::chrono::milliseconds> RestartPolicy::crashed(TimePoint now, bool never_probed) {
  const auto limit_reached = [&](std::deque<TimePoint>& ends, std::chrono::milliseconds window) {
    ends.push_back(now);
    while (ends.front() + window < now) ends.pop_front();
    return ends.size() >= static_cast<size_t>(timings_.crash_limit);
  };
  const bool hangs = never_probed && limit_reached(never_probed_, timings_.never_probed_window);
  if (limit_reached(crashes_, timings_.crash_window) || hangs) return std::nullopt;
  auto delay = timings_.first_backoff;
  for (size_t i = 1; i < crashes_.size() && delay < timings_.longest_backoff; ++i) delay *= 2;
  return std::min(delay, timings_.longest_backoff);
}

}  // namespace isogate::supervisor
