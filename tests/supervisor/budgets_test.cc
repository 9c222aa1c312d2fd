#include "gateway/base/budgets.h"

#include <gtest/gtest.h>

#include "gateway/supervisor/supervisor.h"

namespace isogate::budget {
namespace {

TEST(Budgets, who_waits_for_another_waits_longer) {
  EXPECT_LT(kKill, kReturn);
  EXPECT_LT(kKill, kCallsEnd);
  EXPECT_LT(kReturn, kProbe);
  EXPECT_LT(kProbe, kMeasure);
  EXPECT_LT(kMeasure, kClose);
  EXPECT_LT(kClose, kOpen);
  EXPECT_LT(kAnswersEnd, kDrainExtra);
  EXPECT_LT(kCallsEnd + kCloseAll + kCloseLate, kHostStop);
  const SupervisorTimings timings;
  EXPECT_EQ(timings.drain_extra, kDrainExtra);
  EXPECT_EQ(timings.stop, kHostStop);
}

TEST(Budgets, hosts_whose_probe_hangs_reach_the_limit_in_their_window) {
  const SupervisorTimings timings;
  const auto slowest = timings.ready + kProbe + kReturn + timings.leave + timings.longest_backoff;
  EXPECT_LT((timings.crash_limit - 1) * slowest, timings.never_probed_window);
}

// deploy/: 90 s in compose, Kubernetes and the chart, 120 s in systemd. docs/operations.md has the 59 s.
TEST(Budgets, a_gateway_ends_before_its_service_manager_kills_it) {
  const seconds drained{Config().drain_timeout_sec};
  const seconds stopped = kDrainExtra + kHostStop + kFrontEnds + kOrphans;
  EXPECT_EQ(stopped, seconds(59));
  EXPECT_LT(drained + stopped, seconds(90));
}

}  // namespace
}  // namespace isogate::budget
