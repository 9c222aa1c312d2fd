#include "gateway/front/http/pace.h"

#include <gtest/gtest.h>

namespace isogate::front {
namespace {

using std::chrono::seconds;

TEST(Pace, AWaitIsNeverLongerThanTheIdleLimit) {
  Pace pace(seconds(10), 100);
  Pace::Clock::time_point now{};
  pace.came(1000000);
  EXPECT_EQ(pace.wait_until(now), now + seconds(10));
}

TEST(Pace, WaitingIsPaidForInBytes) {
  Pace pace(seconds(10), 100);
  Pace::Clock::time_point now{};
  for (int i = 0; i < 4; ++i) {  // 8 seconds of waiting, paid with one
    (void)pace.wait_until(now);
    now += seconds(2);
    pace.waited(now);
    pace.came(25);
  }
  EXPECT_EQ(pace.wait_until(now), now + seconds(3));
  now += seconds(3);
  pace.waited(now);
  EXPECT_EQ(pace.wait_until(now), now) << "nothing is left";
}

TEST(Pace, OnlyWaitingCounts) {
  Pace pace(seconds(10), 100);
  Pace::Clock::time_point now{};
  now += seconds(100);  // busy with something else
  EXPECT_EQ(pace.wait_until(now), now + seconds(10));
}

TEST(Pace, WithoutARateOnlySilenceCounts) {
  Pace pace(seconds(10), 0);
  Pace::Clock::time_point now{};
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(pace.wait_until(now), now + seconds(10));
    now += seconds(9);
    pace.waited(now);
  }
}

}  // namespace
}  // namespace isogate::front
