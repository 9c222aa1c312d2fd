#include "gateway/front/base/killer.h"

#include <gtest/gtest.h>

#include <optional>

namespace isogate::front {
namespace {

TEST(Killer, ActsForAllWhoAskedAndAreStillThere) {
  Killer killer;
  int one = 0, other = 0;
  const OnKill lasting(killer, [&one] { ++one; });
  {
    const OnKill passing(killer, [&other] { ++other; });
    killer.kill();
  }
  killer.kill();
  EXPECT_EQ(one, 2);
  EXPECT_EQ(other, 1);
}

TEST(Killer, ThatHasKilledActsAtOnceUntilItIsReset) {
  Killer killer;
  killer.kill();
  int acts = 0;
  const OnKill late(killer, [&acts] { ++acts; });
  EXPECT_EQ(acts, 1);
  killer.reset();
  EXPECT_FALSE(killer.killed());
  const OnKill next(killer, [&acts] { ++acts; });
  EXPECT_EQ(acts, 1);
  killer.kill();
  EXPECT_EQ(acts, 2) << "the first was of other work";
}

TEST(Killer, MayEndBeforeWhoAsked) {
  std::optional<OnKill> asked;
  {
    Killer killer;
    asked.emplace(killer, [] { ADD_FAILURE() << "nobody killed"; });
  }
  asked.reset();
}

}  // namespace
}  // namespace isogate::front
