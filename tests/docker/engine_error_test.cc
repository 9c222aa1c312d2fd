#include "plugins/docker/client/engine_error.h"

#include <gtest/gtest.h>

#include <string>

namespace isogate::docker {
namespace {

std::string said_with(const std::string& body) { return refusal("remove it", 500, body).what(); }

TEST(EngineErrors, HaveTheEnginesMessageOrTheWholeAnswer) {
  EXPECT_EQ(said_with(R"({"message": "gone"})"), "cannot remove it: the Engine answered 500: gone");
  EXPECT_EQ(said_with("<html>"), "cannot remove it: the Engine answered 500: <html>");
  EXPECT_EQ(said_with(""), "cannot remove it: the Engine answered 500");
}

TEST(EngineErrors, OfDeeplyNestedAnswersAreNotParsed) {
  const std::string deep =
      R"({"message": "gone", "cause": )" + std::string(100'000, '[') + std::string(100'000, ']') + "}";
  EXPECT_EQ(said_with(deep).find("cannot remove it: the Engine answered 500: {\"message\": \"gone\""), 0u);
}

}  // namespace
}  // namespace isogate::docker
