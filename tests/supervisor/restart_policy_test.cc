#include "gateway/supervisor/backends/restart_policy.h"

#include <gtest/gtest.h>

namespace isogate::supervisor {
namespace {

using std::chrono::milliseconds;

TEST(RestartPolicy, doubles_and_gives_up_at_the_fifth_crash_in_a_minute) {
  RestartPolicy policy{SupervisorTimings()};
  const TimePoint start{};
  EXPECT_EQ(policy.crashed(start), milliseconds(100));
  EXPECT_EQ(policy.crashed(start + milliseconds(200)), milliseconds(200));
  EXPECT_EQ(policy.crashed(start + milliseconds(400)), milliseconds(400));
  EXPECT_EQ(policy.crashed(start + milliseconds(59000)), milliseconds(800));
  EXPECT_EQ(policy.crashed(start + milliseconds(59500)), std::nullopt);
}

TEST(RestartPolicy, old_crashes_do_not_count) {
  RestartPolicy policy{SupervisorTimings()};
  for (int minute = 0; minute < 20; ++minute)
    EXPECT_EQ(policy.crashed(TimePoint() + milliseconds(61000) * minute), milliseconds(100));
}

// A probe that hangs takes longer than a crash.
TEST(RestartPolicy, hosts_that_never_answered_a_probe_count_for_five_minutes) {
  RestartPolicy policy{SupervisorTimings()};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(policy.crashed(TimePoint() + milliseconds(67000) * i, true), milliseconds(100)) << i;
  EXPECT_EQ(policy.crashed(TimePoint() + milliseconds(67000) * 4, true), std::nullopt);
  policy.forget();
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(policy.crashed(TimePoint() + milliseconds(76000) * i, true), milliseconds(100)) << i;
}

TEST(RestartPolicy, never_waits_two_seconds) {
  SupervisorTimings timings;
  timings.crash_limit = 100;
  RestartPolicy policy(timings);
  for (int i = 0; i < 99; ++i)
    EXPECT_LT(policy.crashed(TimePoint()).value_or(milliseconds(9999)), milliseconds(2000));
}

TEST(RestartPolicy, forgets_on_request) {
  RestartPolicy policy{SupervisorTimings()};
  for (int i = 0; i < 5; ++i) (void)policy.crashed(TimePoint());
  policy.forget();
  EXPECT_EQ(policy.crashed(TimePoint()), milliseconds(100));
}

}  // namespace
}  // namespace isogate::supervisor
