// When a refused call (429) is answered. A caller that calls again at once gets slower responses, so that
// many refused calls of one tenant do not delay others in the front's one thread: beyond a burst, one caller
// gets `per_sec` of them in a second, and waits at most `most`. The front's one thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace isogate::front {

class RefusalPace {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    uint32_t per_sec = 100, burst = 50;
    std::chrono::milliseconds most{5000};
    size_t callers = 1024;  // beyond these all others are one
  };
  RefusalPace() = default;
  explicit RefusalPace(Options options) : options_(options) {}

  // How long to delay the response to `caller`, a tenant or a peer.
  [[nodiscard]] Clock::duration hold(const std::string& caller, Clock::time_point now) {
    const Clock::duration step =
        std::chrono::duration_cast<Clock::duration>(std::chrono::seconds(1)) / options_.per_sec;
    const Clock::time_point earliest = now - step * options_.burst;
    if (next_.size() >= options_.callers && next_.count(caller) == 0) {
      std::erase_if(next_, [&](const auto& each) { return each.second <= earliest; });
    }
    Clock::time_point& next =
        next_[next_.size() < options_.callers || next_.count(caller) > 0 ? caller : std::string()];
    next = std::min(std::max(next, earliest) + step, now + options_.most);
    return std::max(next - now, Clock::duration::zero());
  }

  [[nodiscard]] size_t callers() const { return next_.size(); }

 private:
  Options options_;
  std::unordered_map<std::string, Clock::time_point> next_;
};

}  // namespace isogate::front
