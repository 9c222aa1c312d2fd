#include "lib/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace isogate {
namespace {

TEST(JsonDepth, IsBoundedOutsideOfTexts) {
  EXPECT_TRUE(is_shallow(R"({"a": [1, {"b": "[[[[\"[[[["}]})"));
  EXPECT_TRUE(is_shallow(R"({"a": ")" + std::string(1000, '[') + "\"}"));
  EXPECT_TRUE(is_shallow(std::string(200, '[')));
  EXPECT_FALSE(is_shallow(std::string(201, '[')));
  EXPECT_FALSE(is_shallow(R"(["\\", )" + std::string(1'000'000, '{')));
}

TEST(JsonOfOthers, IsDiscardedIfItIsDeepOrMalformed) {
  EXPECT_EQ(parse_shallow(R"({"a": [1]})").at("a").at(0), 1);
  EXPECT_TRUE(parse_shallow(R"({"a")").is_discarded());
  EXPECT_TRUE(parse_shallow(std::string(201, '[') + std::string(201, ']')).is_discarded());
}

TEST(JsonOfOthers, HasNoMemberWhereItIsOfAnotherType) {
  const auto json = parse_shallow(R"({"text": "t", "number": 1, "list": []})");
  EXPECT_EQ(text_at(json, "text"), "t");
  EXPECT_EQ(text_at(json, "number"), "");
  EXPECT_EQ(text_at(json, "none"), "");
  EXPECT_TRUE(member(json.at("list"), "text").is_null());
  EXPECT_TRUE(member(parse_shallow("{"), "text").is_null());
}

}  // namespace
}  // namespace isogate
