#include "gateway/front/api/json_in.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "gateway/front/base/api_error.h"

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
  EXPECT_EQ(refusal("{\"a\": \"\xff\"}"), "the body is not valid JSON: it is not UTF-8");
  EXPECT_NE(refusal(R"({"a": 1e999})").find("not valid JSON"), std::string::npos);
  EXPECT_NE(refusal(R"({"a": NaN})").find("not valid JSON"), std::string::npos);
}

TEST(JsonBody, RefusesDeepNestingWithoutRecursing) {
  EXPECT_NE(refusal("{\"a\":" + std::string(100000, '[')).find("deeper"), std::string::npos);
  EXPECT_NE(refusal(std::string(10 << 20, '[')).find("deeper"), std::string::npos);
}

// The body itself is the first level.
TEST(JsonBody, Takes32LevelsAndNoMore) {
  const auto nested = [](size_t levels) {
    return "{\"a\":" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
  };
  EXPECT_EQ(refusal(nested(32)), "");
  EXPECT_EQ(refusal(nested(33)), "the body is nested deeper than 32");
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

// Debug builds take 0.2 s; quadratic time would be minutes.
TEST(JsonBody, TakesTimeThatGrowsWithItsSize) {
  std::string array = "{\"a\":[{}", object = "{\"a\":{\"0\":{}";
  for (int i = 1; i < 85000; ++i) {
    array += ",{}";
    object += ",\"" + std::to_string(i) + "\":{}";
  }
  for (const std::string& body : {array + "]}", object + "}}"}) {
    const std::clock_t began = std::clock();
    EXPECT_EQ(refusal(body), "");
    EXPECT_LT(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC, 5);
  }
}

TEST(JsonBody, CountsWhatItKeeps) {
  EXPECT_GE(kept_bytes(parse_body(R"({"a": [{}, {}, {}, {}]})", kFields)), 4 * 64u);
  EXPECT_GE(kept_bytes(parse_body("{\"a\": \"" + std::string(5000, 'x') + "\"}", kFields)), 5000u);
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

// Keys with the same hash, which anybody can compute: the hash of a std::string mixes eight bytes at a time
// from a known start, so that for any eight bytes there are eight that lead back to a given state.
class Collisions {
 public:
  std::vector<std::string> make(size_t bits) {
    std::vector<std::string> keys = {""};
    uint64_t state = 0xc70f6907 ^ (bits * 16 * kFactor);
    for (size_t i = 0; i < bits; ++i) {
      const uint64_t first = letters(), second = letters();
      const uint64_t next = after(after(state, first), second);
      const std::string one = bytes(first) + bytes(second), other = another(state, next);
      std::vector<std::string> longer;
      for (const auto& key : keys) longer.push_back(key + one), longer.push_back(key + other);
      keys = std::move(longer);
      state = next;
    }
    return keys;
  }

 private:
  static constexpr uint64_t kFactor = 0xc6a4a7935bd1e995;
  static uint64_t folded(uint64_t v) { return v ^ v >> 47; }
  static uint64_t after(uint64_t state, uint64_t block) {
    return (state ^ folded(block * kFactor) * kFactor) * kFactor;
  }
  static uint64_t inverse() {
    uint64_t x = kFactor;
    for (int i = 0; i < 6; ++i) x *= 2 - kFactor * x;
    return x;
  }
  static bool printable(uint64_t block) {
    for (int i = 0; i < 8; ++i) {
      const auto c = static_cast<unsigned char>(block >> (8 * i));
      if (c < '#' || c > '~' || c == '\\') return false;
    }
    return true;
  }
  static std::string bytes(uint64_t block) {
    std::string text(8, 0);
    std::memcpy(text.data(), &block, 8);
    return text;
  }
  uint64_t letters() {
    uint64_t block = 0;
    for (int i = 0; i < 8; ++i) block = block << 8 | (static_cast<uint64_t>('a') + random_() % 26);
    return block;
  }
  // Sixteen bytes from `state` to `next`.
  std::string another(uint64_t state, uint64_t next) {
    const uint64_t back = inverse();
    for (;;) {
      const uint64_t first = letters();
      const uint64_t second = folded((next * back ^ after(state, first)) * back) * back;
      if (printable(second)) return bytes(first) + bytes(second);
    }
  }
  std::mt19937 random_{7};
};

std::string object_of(const std::vector<std::string>& keys) {
  std::string text = "{\"a\":{";
  for (const auto& key : keys) text += (text.back() == '{' ? "\"" : ",\"") + key + "\":0";
  return text + "}}";
}

double cpu_sec(const std::string& body) {
  const std::clock_t before = std::clock();
  EXPECT_EQ(refusal(body), "");
  return static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
}

// With a hashed set the colliding keys take some thousand times as long.
TEST(JsonBody, KeysThatCollideCostNoMoreThanOthers) {
  const std::vector<std::string> colliding = Collisions().make(14);
  ASSERT_EQ(std::hash<std::string>()(colliding.front()), std::hash<std::string>()(colliding.back()));
  std::vector<std::string> ordinary = colliding;
  std::mt19937 random(1);
  for (auto& key : ordinary)
    for (auto& c : key) c = static_cast<char>('a' + random() % 26);
  const double base = cpu_sec(object_of(ordinary));
  EXPECT_LT(cpu_sec(object_of(colliding)), 5 * base + 0.1);
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
