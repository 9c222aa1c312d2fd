#include "gateway/cli/terminal.h"

#include <gtest/gtest.h>

namespace isogate::cli {
namespace {

TEST(DetachKeys, TildeDotAtTheBeginningOfALine) {
  const std::pair<const char*, const char*> typed[] = {
      {"~.", ""}, {"ls\r~.", "ls\r"}, {"ls\n~.x", "ls\n"}, {"~~\r~.", "~\r"}, {"~x\r~.", "~x\r"}};
  for (const auto& [keys, sent] : typed) {
    DetachKeys whole, single;
    EXPECT_EQ(whole.pass(keys), sent) << keys;
    EXPECT_TRUE(whole.detached()) << keys;
    std::string all;
    for (const char* key = keys; *key != '\0'; ++key) all += single.pass({key, 1});
    EXPECT_EQ(all, sent) << keys;
    EXPECT_TRUE(single.detached()) << keys;
  }
}

TEST(DetachKeys, AnythingElsePassesUnchanged) {
  for (const char* keys : {"", "a~.", "ls ~/.x\r", "\x03\x04", "~x.", "a\r\x1b[A~."}) {
    DetachKeys detach;
    EXPECT_EQ(detach.pass(keys), keys);
    EXPECT_FALSE(detach.detached()) << keys;
  }
}

TEST(DetachKeys, TwoTildesAreOne) {
  DetachKeys detach;
  EXPECT_EQ(detach.pass("~~/x"), "~/x");
  EXPECT_EQ(detach.pass("\r~"), "\r");
  EXPECT_EQ(detach.pass("a"), "~a");
  EXPECT_FALSE(detach.detached());
}

}  // namespace
}  // namespace isogate::cli
