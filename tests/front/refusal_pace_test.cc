#include "gateway/front/http/refusal_pace.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace isogate::front {
namespace {

using namespace std::chrono_literals;
using Time = RefusalPace::Clock::time_point;

const Time kBegin = Time{} + 1h;

TEST(RefusalPace, ABurstIsAnsweredAtOnce) {
  RefusalPace pace({.per_sec = 10, .burst = 3, .most = 5000ms});
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.hold("a", kBegin), 0ms) << i;
  EXPECT_EQ(pace.hold("a", kBegin), 100ms);
  EXPECT_EQ(pace.hold("a", kBegin), 200ms);
  EXPECT_EQ(pace.hold("b", kBegin), 0ms) << "another's";
}

TEST(RefusalPace, NobodyWaitsLongerThanTheMost) {
  RefusalPace pace({.per_sec = 10, .burst = 1, .most = 500ms});
  RefusalPace::Clock::duration longest{};
  for (int i = 0; i < 1000; ++i) longest = std::max(longest, pace.hold("a", kBegin));
  EXPECT_EQ(longest, 500ms);
  EXPECT_EQ(pace.hold("a", kBegin + 450ms), 150ms) << "and nothing is owed for the rest";
}

TEST(RefusalPace, WhoWaitsIsForgiven) {
  RefusalPace pace({.per_sec = 10, .burst = 3, .most = 5000ms});
  for (int i = 0; i < 10; ++i) (void)pace.hold("a", kBegin);
  EXPECT_GT(pace.hold("a", kBegin), 0ms);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pace.hold("a", kBegin + 2s), 0ms) << i;
  EXPECT_GT(pace.hold("a", kBegin + 2s), 0ms);
}

TEST(RefusalPace, ManyCallersTakeNoMemory) {
  RefusalPace pace({.per_sec = 10, .burst = 1, .most = 5000ms, .callers = 4});
  for (int i = 0; i < 100; ++i) (void)pace.hold("caller " + std::to_string(i), kBegin);
  EXPECT_LE(pace.callers(), 5u);
  EXPECT_EQ(pace.hold("somebody new", kBegin + 1min), 0ms) << "peers that have waited are forgotten";
  EXPECT_LE(pace.callers(), 5u);
}

}  // namespace
}  // namespace isogate::front
