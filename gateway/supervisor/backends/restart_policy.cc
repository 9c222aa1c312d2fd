#include "gateway/supervisor/backends/restart_policy.h"

#include <algorithm>

namespace isogate::supervisor {

std::optional<std::chrono::milliseconds> RestartPolicy::crashed(TimePoint now) {
  crashes_.push_back(now);
  while (crashes_.front() + timings_.crash_window < now) crashes_.pop_front();
  if (crashes_.size() >= static_cast<size_t>(timings_.crash_limit)) return std::nullopt;
  auto delay = timings_.first_backoff;
  for (size_t i = 1; i < crashes_.size() && delay < timings_.longest_backoff; ++i) delay *= 2;
  return std::min(delay, timings_.longest_backoff);
}

}  // namespace isogate::supervisor
