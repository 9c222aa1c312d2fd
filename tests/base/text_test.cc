#include "lib/text.h"

#include <gtest/gtest.h>

namespace isogate {
namespace {

TEST(NumberIn, TakesAllOfTheTextOrNothing) {
  EXPECT_EQ(number_in<uint16_t>("65535"), 65535);
  EXPECT_EQ(number_in<int>("-7"), -7);
  EXPECT_EQ(number_in<uint32_t>("0644", 8), 0644u);
  EXPECT_EQ(number_in<double>("1.5"), 1.5);
  for (const char* text : {"", " 1", "1 ", "+1", "-1", "12x", "0x10", "65536", "99999999999999999999"})
    EXPECT_EQ(number_in<uint16_t>(text), std::nullopt) << text;
}

TEST(LineField, IsTheRestOfTheFirstLineThatBeginsSo) {
  constexpr std::string_view kStatus = "Name:\tUid: 9\nUid:\t1\t2 \nUids:\t3\nUid:\t4\nGroups:\t";
  EXPECT_EQ(line_field(kStatus, "Name"), "Uid: 9");
  EXPECT_EQ(line_field(kStatus, "Uid"), "1\t2");
  EXPECT_EQ(line_field(kStatus, "Groups"), "");
  EXPECT_EQ(line_field(kStatus, "Gid"), std::nullopt);
}

TEST(SplitAddress, CutsAtTheLastColon) {
  using Pair = std::pair<std::string_view, std::string_view>;
  EXPECT_EQ(split_address("127.0.0.1:80"), Pair("127.0.0.1", "80"));
  EXPECT_EQ(split_address("[::1]:80"), Pair("::1", "80"));
  EXPECT_EQ(split_address("host"), Pair("host", ""));
  EXPECT_EQ(split_address(""), Pair("", ""));
}

TEST(SplitHost, CutsOffWhatFollowsTheHost) {
  const auto parts = [](std::string_view text) {
    const auto cut = split_host(text);
    return cut ? std::string(cut->host) + (cut->bracketed ? "|b|" : "|") + std::string(cut->rest) : "none";
  };
  EXPECT_EQ(parts("host"), "host|");
  EXPECT_EQ(parts("host:80"), "host|:80");
  EXPECT_EQ(parts("::1"), "|::1");
  EXPECT_EQ(parts("[::1]"), "::1|b|");
  EXPECT_EQ(parts("[::1]:80"), "::1|b|:80");
  EXPECT_EQ(parts("[::1]x"), "::1|b|x");
  EXPECT_EQ(parts("[::1"), "none");
  EXPECT_EQ(parts(""), "|");
}

TEST(JoinAddress, PutsBracketsAroundIpv6) {
  EXPECT_EQ(join_address("127.0.0.1", "80"), "127.0.0.1:80");
  EXPECT_EQ(join_address("::1", "80"), "[::1]:80");
}

TEST(Parts, AreWhatIsBetweenTheSeparators) {
  using Parts = std::vector<std::string_view>;
  EXPECT_EQ(split("", ','), Parts{""});
  EXPECT_EQ(split("a", ','), Parts{"a"});
  EXPECT_EQ(split(",a,,b,", ','), (Parts{"", "a", "", "b", ""}));
  std::string_view rest = "a,,b=c,";
  EXPECT_EQ(next_part(rest, ','), "a");
  EXPECT_EQ(next_part(rest, ','), "");
  EXPECT_EQ(next_part(rest, ','), "b=c");
  EXPECT_EQ(rest, "");
  EXPECT_EQ(next_part(rest, ','), "");
}

TEST(Join, PutsTheSeparatorBetween) {
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(join(std::vector<std::string_view>{"a", "", "b"}, ", "), "a, , b");
  EXPECT_EQ(join(std::vector<int>{1, 2}, "+", [](int each) { return std::to_string(each); }), "1+2");
}

TEST(Trimmed, CutsBlanksAtBothEnds) {
  EXPECT_EQ(trimmed(" \ta b\t "), "a b");
  EXPECT_EQ(trimmed(" \t"), "");
  EXPECT_EQ(trimmed(""), "");
  EXPECT_EQ(trimmed("\n a\n"), "\n a\n");
  EXPECT_EQ(trimmed("\n a\n", " \n"), "a");
}

TEST(Base64Url, HasNoPaddingAndTheOtherAlphabet) {
  EXPECT_EQ(base64url_encode("\xfb\xff"), "-_8");
  EXPECT_EQ(base64url_encode(""), "");
}

}  // namespace
}  // namespace isogate
