#include "plugins/k8s/client/rate_limit.h"

#include <algorithm>

namespace isogate::k8s {

using Seconds = std::chrono::duration<double>;

RateLimit::RateLimit(double qps, double burst)
    : qps_(qps), burst_(std::max(burst, 1.0)), tokens_(burst_), then_(Budget::Clock::now()) {}

// If there is no token, the caller still takes one, so the bucket is in debt, and waits until the debt is
// paid.
bool RateLimit::take(const Budget& budget) {
  if (qps_ <= 0) return true;
  Budget::Clock::time_point turn;
  {
    const std::lock_guard lock(mutex_);
    const auto now = Budget::Clock::now();
    tokens_ = std::min(burst_, tokens_ + Seconds(now - then_).count() * qps_);
    then_ = now;
    tokens_ -= 1;
    turn = tokens_ >= 0 ? now
                        : now + std::chrono::duration_cast<Budget::Clock::duration>(Seconds(-tokens_ / qps_));
  }
  while (Budget::Clock::now() < turn) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(turn - Budget::Clock::now());
    if (budget.wait(-1, 0, left) != Budget::Outcome::kCancelled && !budget.over()) continue;
    const std::lock_guard lock(mutex_);
    tokens_ += 1;
    return false;
  }
  return true;
}

}  // namespace isogate::k8s
