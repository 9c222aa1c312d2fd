#include "gateway/front/json_in.h"

#include <gtest/gtest.h>

#include <array>
#include <nlohmann/json.hpp>

#include "gateway/front/api_error.h"

namespace isogate::front {
namespace {

constexpr std::array<std::string_view, 3> kFields = {"a", "b", "c"};

std::string refusal(const std::string& body) {
  try {
    parse_body(body, kFields);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.code, Code::kInvalidRequest);
    return error.message;
  }
  return "";
}

TEST(JsonBody, TakesAnObjectOfKnownFields) {
  const auto body = parse_body(R"({"a": "x", "b": 3, "c": null})", kFields);
  EXPECT_EQ(text_field(body, "a"), "x");
  EXPECT_EQ(count_field(body, "b", 0, 5), 3u);
  EXPECT_EQ(text_field(body, "c"), std::nullopt);
  EXPECT_EQ(bool_field(body, "d"), std::nullopt);
}

TEST(JsonBody, RefusesWhatIsNotOneStrictObject) {
  EXPECT_NE(refusal("").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("[]").find("object"), std::string::npos);
  EXPECT_NE(refusal("{} x").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("\xef\xbb\xbf{}").find("byte order mark"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": 1, "a": 2})").find("`a` occurs twice"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": {"x": 1, "x": 2}})").find("`x` occurs twice"), std::string::npos);
  EXPECT_NE(refusal(R"({"z": 1})").find("unknown field `z`"), std::string::npos);
  EXPECT_NE(refusal(R"({"__proto__": 1})").find("unknown field"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": "x\u0000y"})").find("NUL"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": "\ud800"})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal("{\"a\": \"\xff\"}").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": 1e999})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": NaN})").find("not valid JSON"), std::string::npos);
}

TEST(JsonBody, RefusesDeepNestingWithoutRecursing) {
  EXPECT_NE(refusal("{\"a\":" + std::string(100000, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(10 << 20, '[')).find("deeper"), std::string::npos);
}

TEST(JsonBody, RefusesMoreValuesThanARequestCanMean) {
  const auto array = [](size_t count) {
    std::string text = "{\"a\":[";
    for (size_t i = 0; i < count; ++i) text += i == 0 ? "[]" : ",[]";
    return text + "]}";
  };
  EXPECT_EQ(refusal(array(100000)), "");
  EXPECT_NE(refusal(array(300000)).find("values"), std::string::npos);
}

TEST(JsonBody, ReadsIntegersAsDigitsAndNothingElse) {
  const auto body = parse_body(R"({"a": 5, "b": 5.0, "c": -0})", kFields);
  EXPECT_EQ(count_field(body, "a", 0, 5), 5u);
  EXPECT_THROW(count_field(body, "b", 0, 5), ApiError);
  EXPECT_THROW(count_field(body, "c", 0, 5), ApiError);
  const auto large =
      parse_body(R"({"a": 18446744073709551615, "b": 18446744073709551616, "c": 5e0})", kFields);
  EXPECT_EQ(count_field(large, "a", 0, UINT64_MAX), UINT64_MAX);
  EXPECT_THROW(count_field(large, "b", 0, UINT64_MAX), ApiError);
  EXPECT_THROW(count_field(large, "c", 0, 5), ApiError);
}

TEST(JsonBody, ComparesKeysAfterTheirEscapes) {
  EXPECT_NE(refusal(R"({"a": 1, "\u0061": 2})").find("`a` occurs twice"), std::string::npos);
  EXPECT_NE(refusal(R"({"a\u0000": 1})").find("NUL"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": "\udc00\ud800"})").find("not valid JSON"), std::string::npos);
  EXPECT_EQ(refusal(R"({"a": "\ud83d\ude00"})"), "");
  EXPECT_NE(refusal(std::string("{}\0{}", 5)).find("NUL byte"), std::string::npos);
}

TEST(JsonBody, NamesTheFieldOfAWrongType) {
  const auto body = parse_body(R"({"a": 1, "b": -1, "c": 1.5})", kFields);
  EXPECT_THROW(text_field(body, "a"), ApiError);
  EXPECT_THROW(count_field(body, "b", 0, 5), ApiError);
  EXPECT_THROW(count_field(body, "c", 0, 5), ApiError);
  EXPECT_THROW(count_field(body, "a", 2, 5), ApiError);
  EXPECT_THROW(bool_field(body, "a"), ApiError);
  EXPECT_EQ(number_field(body, "c"), 1.5);
}

}  // namespace
}  // namespace isogate::front
