#include "lib/json_depth.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace isogate
