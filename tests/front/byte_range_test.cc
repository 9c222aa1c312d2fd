#include "gateway/front/api/byte_range.h"

#include <gtest/gtest.h>

namespace isogate::front {
namespace {

struct Case {
  const char* header;
  uint64_t size;
  bool satisfiable;
  uint64_t offset, length;
  bool partial;
};

TEST(ByteRange, FollowsTheTable) {
  const Case cases[] = {
      {"", 10, true, 0, 10, false},
      {"bytes=0-3", 10, true, 0, 4, true},
      {"bytes=3-", 10, true, 3, 7, true},
      {"bytes=-4", 10, true, 6, 4, true},
      {"bytes=-40", 10, true, 0, 10, true},
      {"bytes=5-100", 10, true, 5, 5, true},
      {"bytes=10-", 10, false, 0, 0, false},
      {"bytes=-0", 10, false, 0, 0, false},
      {"bytes=0-0", 0, false, 0, 0, false},
      {"bytes=4-2", 10, true, 0, 10, false},
      {"bytes=0-1,4-5", 10, true, 0, 10, false},
      {"bytes=", 10, true, 0, 10, false},
      {"bytes=-", 10, true, 0, 10, false},
      {"bytes=x-2", 10, true, 0, 10, false},
      {"bytes=1-x", 10, true, 0, 10, false},
      {"bytes=99999999999999999999-", 10, true, 0, 10, false},
      {"lines=0-3", 10, true, 0, 10, false},
  };
  for (const Case& each : cases) {
    const auto range = parse_range(each.header, each.size);
    ASSERT_EQ(range.has_value(), each.satisfiable) << each.header;
    if (!range) continue;
    EXPECT_EQ(range->offset, each.offset) << each.header;
    EXPECT_EQ(range->length, each.length) << each.header;
    EXPECT_EQ(range->partial, each.partial) << each.header;
  }
}

}  // namespace
}  // namespace isogate::front
