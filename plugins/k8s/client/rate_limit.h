// A token bucket for requests: `qps` of them a second, `burst` at once. Any thread.
#pragma once

#include <mutex>

#include "lib/net/budget.h"

namespace isogate::k8s {

using net::Budget;

class RateLimit {
 public:
  RateLimit(double qps, double burst);  // qps 0: any number
  // Waits for its turn, in the order of the calls. False: the turn would come after the budget's end, or
  // the budget was cancelled; the turn is returned.
  [[nodiscard]] bool take(const Budget& budget);

 private:
  const double qps_, burst_;
  std::mutex mutex_;
  double tokens_;
  Budget::Clock::time_point then_;
};

}  // namespace isogate::k8s
