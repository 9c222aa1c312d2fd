#include "lib/text.h"

#include <gtest/gtest.h>

#include <string>

namespace isogate {
namespace {

TEST(Utf8, TakesEveryLengthOfCodePoint) {
  EXPECT_EQ(first_code_point("a").value, 0x61u);
  EXPECT_EQ(first_code_point("é").value, 0xE9u);
  EXPECT_EQ(first_code_point("€").value, 0x20ACu);
  EXPECT_EQ(first_code_point("😀").value, 0x1F600u);
  EXPECT_EQ(first_code_point("😀x").size, 4u);
  EXPECT_TRUE(is_utf8("aé€😀"));
  EXPECT_TRUE(is_utf8("\xF4\x8F\xBF\xBF"));
}

TEST(Utf8, RefusesWhatRfc3629Refuses) {
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xF0\x80\x80\x80", "\xED\xA0\x80",
        "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xC3", "\xC3(", "\xF0\x9F\x98"})
    EXPECT_FALSE(is_utf8(bad)) << bad;
}

TEST(Utf8, CutsBetweenCodePoints) {
  EXPECT_EQ(utf8_prefix("aé€", 100), "aé€");
  EXPECT_EQ(utf8_prefix("aé€", 5), "aé");
  EXPECT_EQ(utf8_prefix("aé€", 2), "a");
  EXPECT_EQ(utf8_prefix("€", 2), "");
}

}  // namespace
}  // namespace isogate
