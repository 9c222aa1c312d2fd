#include "sdk/runner_link/exchange.h"

#include <gtest/gtest.h>

namespace isogate::testing {
namespace {

using sdk::link::Exchange;

std::string wire_of(Exchange& exchange) {
  std::string all;
  for (auto next = exchange.next(); !next.empty(); next = exchange.next()) {
    all += next;
    exchange.took(next.size());
  }
  return all;
}

std::string hear(Exchange& exchange, std::string bytes) {
  bytes.resize(exchange.receive(bytes));
  return bytes;
}

std::string chunk(uint32_t size, uint32_t flags, uint64_t received) {
  const isogate_runner_chunk head{size, flags, received};
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

TEST(Exchange, SaysAgainWhatWasNotHeard) {
  Exchange one, other;
  one.add("hello world");
  EXPECT_EQ(hear(other, wire_of(one).substr(0, sizeof(isogate_runner_chunk) + 5)), "hello");
  ASSERT_TRUE(one.resume(other.received()) && other.resume(one.received()));
  EXPECT_EQ(hear(other, wire_of(one)), " world");
  EXPECT_TRUE(wire_of(one).empty());
}

TEST(Exchange, KeepsUntilItIsAcknowledged) {
  Exchange one, other;
  one.add(std::string(ISOGATE_RUNNER_KEPT, 'x'));
  EXPECT_EQ(one.room(), 0u);
  EXPECT_EQ(hear(other, wire_of(one)).size(), ISOGATE_RUNNER_KEPT);
  EXPECT_EQ(one.room(), 0u);
  EXPECT_EQ(hear(one, wire_of(other)), "");
  EXPECT_EQ(one.room(), ISOGATE_RUNNER_KEPT);
  EXPECT_EQ(one.kept(), 0u);
}

TEST(Exchange, RefusesWhatCannotBe) {
  Exchange one;
  one.add("12345678");
  EXPECT_FALSE(one.resume(1)) << "nothing of it was sent";
  wire_of(one);
  EXPECT_TRUE(one.resume(8));
  EXPECT_FALSE(one.resume(7)) << "that is no longer kept";
  EXPECT_FALSE(one.resume(9));
  for (const std::string& bad : {chunk(0, 0, 9), chunk(0, 0, 7), chunk(0, 2, 8), chunk(1, 1, 8),
                                 chunk(ISOGATE_RUNNER_MAX_CHUNK + 1, 0, 8)}) {
    Exchange again;
    again.add("12345678");
    wire_of(again);
    ASSERT_TRUE(again.resume(8));
    hear(again, bad);
    EXPECT_NE(again.fault(), nullptr);
  }
}

TEST(Exchange, AGoodbyeGoesFirst) {
  Exchange one, other;
  one.add("not sent any more");
  one.add_goodbye();
  EXPECT_EQ(hear(other, wire_of(one) + "and what follows"), "");
  EXPECT_TRUE(other.is_over());
  EXPECT_EQ(other.fault(), nullptr);
}

}  // namespace
}  // namespace isogate::testing
