#include "gateway/front/backends/call_gate.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace isogate::front {
namespace {

using Tickets = std::vector<CallGate::Ticket>;

// Why no further one is let in; empty: `most` were.
std::string fill(Tickets& tickets, int most, const std::function<CallGate::Ticket()>& enter) {
  try {
    for (int i = 0; i < most; ++i) tickets.push_back(enter());
    return "";
  } catch (const ApiError& error) {
    EXPECT_EQ(error.code, Code::kRateLimited);
    EXPECT_EQ(error.retry_after_sec, 1u);
    return error.message;
  }
}

TEST(CallGate, ATenantHasItsShareAndAllHaveTheWhole) {
  CallGate gate("ports");
  gate.resize(6, 4);
  Tickets a, b;
  EXPECT_EQ(fill(a, 9, [&] { return gate.enter("a"); }),
            "4 ports of this tenant are under way; try again when one has ended");
  EXPECT_EQ(a.size(), 4u);
  EXPECT_EQ(fill(b, 9, [&] { return gate.enter("b"); }), "6 ports are under way; try again later");
  EXPECT_EQ(b.size(), 2u);
  a.pop_back();
  EXPECT_EQ(fill(b, 1, [&] { return gate.enter("b"); }), "") << "a place that was left is free again";
}

TEST(CallGate, DurableWritesHoldAtMostHalfAndOneTenantsAnEighth) {
  CallGate gate;
  gate.resize(32, 32);
  Tickets all;
  for (const char* tenant : {"a", "b", "c", "d"}) {
    const size_t before = all.size();
    EXPECT_NE(fill(all, 9, [&] { return gate.enter(tenant, true); }), "");
    EXPECT_EQ(all.size() - before, 4u) << tenant;
  }
  EXPECT_EQ(fill(all, 1, [&] { return gate.enter("e", true); }),
            "16 durable writes are under way; try again later");
  EXPECT_EQ(fill(all, 16, [&] { return gate.enter("e"); }), "") << "the other half is for other calls";
}

TEST(CallGate, WatchesHavePlacesOfTheirOwn) {
  CallGate gate;
  gate.resize(1, 1);
  gate.resize_watches(3, 2);
  Tickets all;
  EXPECT_EQ(fill(all, 9, [&] { return gate.enter_watch("a"); }),
            "2 watches of this tenant are under way; try again when one has ended");
  EXPECT_EQ(fill(all, 9, [&] { return gate.enter_watch("b"); }), "3 watches are under way; try again later");
  EXPECT_EQ(fill(all, 1, [&] { return gate.enter("a"); }), "");
}

}  // namespace
}  // namespace isogate::front
