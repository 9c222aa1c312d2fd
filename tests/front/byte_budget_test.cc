#include "gateway/front/base/byte_budget.h"

#include <gtest/gtest.h>

#include "gateway/front/base/api_error.h"

namespace isogate::front {
namespace {

unsigned refused_with(ByteShare& share, uint64_t bytes) {
  const uint64_t before = share.bytes();
  try {
    share.hold(bytes);
  } catch (const ApiError& error) {
    EXPECT_GE(error.retry_after_sec, 1u);
    EXPECT_EQ(share.bytes(), before) << "a refusal changes nothing";
    return error.http_status();
  }
  return 0;
}

TEST(ByteBudget, BoundsATenantAndAllOfThem) {
  ByteBudget budget;
  budget.set_limits(100, 60);
  ByteShare one(budget, "a"), two(budget, "a"), other(budget, "b");
  one.hold(40);
  two.hold(20);
  EXPECT_EQ(refused_with(two, 21), 429u) << "the tenant's share";
  other.hold(40);
  EXPECT_EQ(refused_with(other, 41), 429u) << "the total is used up, though its own share is not";
  EXPECT_EQ(budget.held(), 100u);
}

TEST(ByteBudget, GivesBackWhatIsHeldNoMore) {
  ByteBudget budget;
  budget.set_limits(100, 100);
  {
    ByteShare share(budget, "a");
    share.hold(90);
    share.hold(30);
    EXPECT_EQ(budget.held(), 30u);
    share.add(70);
    EXPECT_EQ(budget.held(), 100u);
    ByteShare moved = std::move(share);
    EXPECT_EQ(budget.held(), 100u);
    moved = ByteShare(budget, "b");
    EXPECT_EQ(budget.held(), 0u);
    moved.hold(100);
  }
  EXPECT_EQ(budget.held(), 0u);
}

TEST(ByteBudget, NoSumWrapsAround) {
  ByteBudget budget;
  budget.set_limits(UINT64_MAX - 1, UINT64_MAX - 1);
  ByteShare one(budget, "a"), two(budget, "a");
  one.hold(10);
  EXPECT_EQ(refused_with(two, UINT64_MAX - 5), 429u);
  EXPECT_EQ(budget.held(), 10u);
}

// A reload may lower the limits below what is held.
TEST(ByteBudget, LowerLimitsTakeNothingAwayAndAdmitNothingMore) {
  ByteBudget budget;
  budget.set_limits(100, 100);
  ByteShare share(budget, "a"), next(budget, "b");
  share.hold(80);
  budget.set_limits(50, 25);
  EXPECT_EQ(refused_with(share, 81), 429u);
  EXPECT_EQ(refused_with(next, 1), 429u);
  share.hold(20);
  next.hold(25);
  EXPECT_EQ(budget.held(), 45u);
}

TEST(ByteBudget, KeptDataIsDroppedBeforeARequestIsRefused) {
  ByteBudget budget;
  budget.set_limits(100, 60);
  std::vector<ByteShare> kept;
  std::vector<std::string> asked;
  budget.set_reclaim([&](const std::string& tenant, uint64_t bytes) {
    asked.push_back(tenant);
    if (kept.size() * 30 < bytes) return false;
    kept.erase(kept.begin());
    return true;
  });
  for (int i = 0; i < 2; ++i) kept.emplace_back(budget, "a").hold(30);
  ByteShare request(budget, "a");
  request.hold(40);
  EXPECT_EQ(budget.held(), 40u);
  EXPECT_EQ(asked, (std::vector<std::string>{"a", "a"}));
  EXPECT_THROW(request.hold(61), ApiError);
  EXPECT_EQ(budget.held(), 40u);
  ByteShare other(budget, "b");
  other.hold(60);
  asked.clear();
  ByteShare third(budget, "c");
  EXPECT_THROW(third.hold(1), ApiError);
  EXPECT_EQ(asked, std::vector<std::string>{""}) << "of anybody";
}

}  // namespace
}  // namespace isogate::front
