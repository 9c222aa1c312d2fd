#include "gateway/front/backends/breaker.h"

#include <gtest/gtest.h>

namespace isogate::front {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using BreakerState = Breaker::State;

Breaker::Time after(std::chrono::milliseconds since) {
  return Breaker::Time{} + std::chrono::hours(1) + since;
}

// Each call is of another sandbox.
void fail(Breaker& breaker, Breaker::Time now, int times = 1) {
  static int sandbox = 0;
  for (int i = 0; i < times; ++i) breaker.failed(now, std::to_string(++sandbox), "contact lost");
}

TEST(Breaker, OpensAfterThreeFailuresInARow) {
  Breaker breaker;
  fail(breaker, after(seconds(0)), 2);
  EXPECT_FALSE(breaker.blocked(after(seconds(0))));
  EXPECT_EQ(breaker.reason(after(seconds(0))), "");
  fail(breaker, after(seconds(0)));
  EXPECT_EQ(breaker.state(after(seconds(0))), BreakerState::kOpen);
  EXPECT_TRUE(breaker.blocked(after(seconds(0))));
}

TEST(Breaker, OneSandboxThatFailsAgainAndAgainDoesNotOpenIt) {
  Breaker breaker;
  for (int i = 0; i < 50; ++i) breaker.failed(after(seconds(i)), "one", "contact lost");
  EXPECT_EQ(breaker.state(after(seconds(50))), BreakerState::kClosed);
  breaker.failed(after(seconds(50)), "two", "contact lost");
  breaker.failed(after(seconds(50)), "three", "contact lost");
  EXPECT_EQ(breaker.state(after(seconds(50))), BreakerState::kOpen);
}

TEST(Breakers, WhatOneTenantDoesClosesNothingForAnother) {
  Breakers breakers;
  EXPECT_FALSE(breakers.failed("a", "1", after(seconds(0)), "contact lost"));
  EXPECT_FALSE(breakers.failed("a", "2", after(seconds(0)), "contact lost"));
  EXPECT_TRUE(breakers.failed("a", "3", after(seconds(0)), "contact lost")) << "told once";
  EXPECT_FALSE(breakers.failed("a", "4", after(seconds(0)), "contact lost"));
  EXPECT_TRUE(breakers.of("a").blocked(after(seconds(1))));
  EXPECT_FALSE(breakers.of("b").blocked(after(seconds(1))));
  EXPECT_EQ(breakers.of("b").reason(after(seconds(1))), "");
  EXPECT_EQ(breakers.of("b").last_failure(), "");
  breakers.recovered();
  EXPECT_FALSE(breakers.of("a").blocked(after(seconds(1)))) << "a successful probe closes all";
}

TEST(Breakers, ATrialThatShowsNothingLetsTheNextOneTry) {
  Breakers breakers;
  for (const char* sandbox : {"1", "2", "3"})
    breakers.failed("a", sandbox, after(seconds(0)), "contact lost");
  ASSERT_FALSE(breakers.of("a").blocked(after(seconds(6))));
  breakers.started("a", after(seconds(6)));
  ASSERT_TRUE(breakers.of("a").blocked(after(seconds(7)))) << "one at a time";
  breakers.ended("a");
  EXPECT_FALSE(breakers.of("a").blocked(after(seconds(7))));
  EXPECT_NE(breakers.of("a").last_failure(), "") << "it is not over";
}

TEST(Breakers, SayWhatFailedLastUntilACallEndsWell) {
  Breakers breakers;
  breakers.failed("a", "1", after(seconds(0)), "no such image");
  EXPECT_EQ(breakers.of("a").reason(after(seconds(0))), "") << "closed";
  EXPECT_EQ(breakers.of("a").last_failure(), "no such image");
  breakers.succeeded("a");
  EXPECT_EQ(breakers.of("a").last_failure(), "");
}

TEST(Breaker, LetsOneTrialThroughAfterItsDelay) {
  Breaker breaker;
  fail(breaker, after(seconds(0)), 3);
  EXPECT_TRUE(breaker.blocked(after(milliseconds(4999))));
  EXPECT_EQ(breaker.state(after(seconds(5))), BreakerState::kHalfOpen);
  EXPECT_FALSE(breaker.blocked(after(seconds(5))));
  breaker.started(after(seconds(5)));
  EXPECT_TRUE(breaker.blocked(after(seconds(5)))) << "one trial after a time";
}

TEST(Breaker, DoublesItsDelayUpToAMinute) {
  Breaker breaker;
  auto now = after(seconds(0));
  fail(breaker, now, 3);
  for (int expected : {5, 10, 20, 40, 60, 60, 60}) {
    EXPECT_TRUE(breaker.blocked(now + seconds(expected) - milliseconds(1))) << expected;
    now += seconds(expected);
    ASSERT_FALSE(breaker.blocked(now)) << expected;
    breaker.started(now);
    fail(breaker, now);
  }
}

TEST(Breakers, ASuccessStartsTheCountAndTheDelayAgain) {
  Breakers breakers;
  const auto fails = [&](seconds since) {
    for (const char* sandbox : {"1", "2", "3"}) breakers.failed("a", sandbox, after(since), "contact lost");
  };
  fails(seconds(0));
  breakers.started("a", after(seconds(5)));
  breakers.failed("a", "1", after(seconds(5)), "contact lost");  // 10 s now
  breakers.succeeded("a");
  EXPECT_EQ(breakers.of("a").state(after(seconds(5))), BreakerState::kClosed);
  breakers.failed("a", "1", after(seconds(5)), "contact lost");
  EXPECT_EQ(breakers.of("a").state(after(seconds(5))), BreakerState::kClosed);
  fails(seconds(5));
  EXPECT_TRUE(breakers.of("a").blocked(after(milliseconds(9999))));
  EXPECT_FALSE(breakers.of("a").blocked(after(seconds(10))));
}

TEST(Breaker, IgnoresLateFailuresOfCallsFromBefore) {
  Breaker breaker;
  fail(breaker, after(seconds(0)), 3);
  fail(breaker, after(seconds(4)), 50);
  EXPECT_FALSE(breaker.blocked(after(seconds(5))));
}

TEST(Breaker, ATrialThatNeverEndsDoesNotBlockForEver) {
  Breaker breaker;
  fail(breaker, after(seconds(0)), 3);
  breaker.started(after(seconds(5)));
  EXPECT_TRUE(breaker.blocked(after(milliseconds(64999))));
  EXPECT_FALSE(breaker.blocked(after(seconds(65))));
}

TEST(Breaker, SaysWhatFailedAndWhatComesNext) {
  Breaker breaker;
  fail(breaker, after(seconds(0)), 3);
  EXPECT_EQ(breaker.reason(after(milliseconds(1500))),
            "3 failures in a row, the last: contact lost; tried again in 4 s");
  EXPECT_EQ(breaker.reason(after(seconds(6))),
            "3 failures in a row, the last: contact lost; the next call tries it again");
  breaker.started(after(seconds(6)));
  EXPECT_EQ(breaker.reason(after(seconds(6))),
            "3 failures in a row, the last: contact lost; being tried again now");
}

}  // namespace
}  // namespace isogate::front
