#include "gateway/config/images.h"

#include <gtest/gtest.h>

namespace isogate::test {
namespace {

TEST(Images, AreAdmittedByPatterns) {
  const std::vector<std::string> patterns = {"python:3.12", "debian:*", "registry.example.com:5000/team/*"};
  for (const char* admitted :
       {"python:3.12", "debian:12", "registry.example.com:5000/team/tools@sha256:0f", "debian:"})
    EXPECT_TRUE(image_admitted(patterns, admitted)) << admitted;
  for (const char* refused : {"", "python:3", "python:3.12-slim", "team/tools",
                              "registry.example.com:5000/other", "registry.example.com:5000/teams"})
    EXPECT_FALSE(image_admitted(patterns, refused)) << refused;
  EXPECT_FALSE(image_admitted({}, "python:3.12"));
  EXPECT_TRUE(image_admitted({"*"}, "registry.example.com/any:1"));
}

TEST(Images, APatternCompletesNoRegistry) {
  EXPECT_FALSE(image_admitted({"debian:*"}, "debian:5000/x"));
  EXPECT_FALSE(image_admitted({"registry.example.com*"}, "registry.example.com.evil.example/x"));
}

TEST(Images, HaveNames) {
  for (const char* name : {"a", "python:3.12", "team/tools", "h:5000/t@sha256:0f", "localhost/x-y_z.1"})
    EXPECT_TRUE(is_image_name(name)) << name;
  for (const char* name : {"", "-v", "/x", "a b", "a\nb", "a*", "ä"})
    EXPECT_FALSE(is_image_name(name)) << name;
  EXPECT_FALSE(is_image_name(std::string(256, 'a')));
  for (const char* pattern : {"*", "a*", "python:*", "team/*"})
    EXPECT_TRUE(is_image_pattern(pattern)) << pattern;
  for (const char* pattern : {"", "**", "a*b", "*a"}) EXPECT_FALSE(is_image_pattern(pattern)) << pattern;
}

}  // namespace
}  // namespace isogate::test
