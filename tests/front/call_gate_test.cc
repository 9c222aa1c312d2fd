#include "gateway/front/backends/call_gate.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace isogate::front {
namespace {

using Places = std::vector<std::shared_ptr<void>>;

// Why no further one is let in; empty: `most` were.
std::string fill(Places& places, int most, const std::function<std::shared_ptr<void>()>& enter) {
  try {
    for (int i = 0; i < most; ++i) places.push_back(enter());
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
  Places a, b;
  EXPECT_EQ(fill(a, 9, [&] { return gate.enter("a"); }),
            "4 ports of this tenant are under way; try again when one has ended");
  EXPECT_EQ(a.size(), 4u);
  EXPECT_EQ(fill(b, 9, [&] { return gate.enter("b"); }), "6 ports are under way; try again later");
  EXPECT_EQ(b.size(), 2u);
  a.pop_back();
  EXPECT_EQ(fill(b, 1, [&] { return gate.enter("b"); }), "") << "a place that was left is free again";
}

TEST(CallGate, DurableWritesHoldAtMostHalfAndOneTenantsAnEighth) {
  CallGate calls("file calls"), durable("durable writes");
  calls.resize(32, 32);
  durable.resize_durable(32, 32);
  Places all, among;
  const auto enter = [&](const std::string& tenant) {
    auto place = calls.enter(tenant);
    among.push_back(durable.enter(tenant));
    return place;
  };
  for (const char* tenant : {"a", "b", "c", "d"}) {
    const size_t before = all.size();
    EXPECT_NE(fill(all, 9, [&] { return enter(tenant); }), "");
    EXPECT_EQ(all.size() - before, 4u) << tenant;
  }
  EXPECT_EQ(fill(all, 1, [&] { return enter("e"); }), "16 durable writes are under way; try again later");
  EXPECT_EQ(fill(all, 16, [&] { return calls.enter("e"); }), "") << "the other half is for other calls";
}

}  // namespace
}  // namespace isogate::front
