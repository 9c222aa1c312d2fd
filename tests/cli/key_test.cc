#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "lib/hash.h"
#include "tests/cli/terminal.h"
#include "tests/support/program.h"

namespace isogate::test {
namespace {

ProgramResult hash(const std::string& input) {
  ProgramOptions options;
  options.stdin_bytes = input;
  return run_isogate({"key", "hash"}, options);
}

TEST(Key, NewIsRandomLongAndFitsItsHash) {
  auto one = run_isogate({"key", "new", "--json"}), other = run_isogate({"key", "new", "--json"});
  ASSERT_EQ(one.exit_code, 0);
  auto key = nlohmann::json::parse(one.out);
  EXPECT_TRUE(std::regex_match(key.at("key").get<std::string>(), std::regex("isg_[a-z2-7]{52}")));
  EXPECT_EQ(key.at("sha256"), sha256_hex(key.at("key").get<std::string>()));
  EXPECT_NE(one.out, other.out);
  EXPECT_EQ(one.err, "");
}

TEST(Key, NewForPeopleShowsTheKeyOnceAndWhatToConfigure) {
  auto done = run_isogate({"key", "new"});
  std::smatch key;
  ASSERT_TRUE(
      std::regex_search(done.out, key, std::regex("key     (isg_[a-z2-7]{52})\nsha256  ([0-9a-f]{64})\n")));
  EXPECT_EQ(key[2], sha256_hex(key[1].str()));
  EXPECT_EQ(done.err.find(key[1].str()), std::string::npos);
  EXPECT_NE(done.err.find("sha256: " + key[2].str()), std::string::npos);
}

TEST(Key, HashReadsStdinWithoutItsNewline) {
  for (const char* input : {"my-key", "my-key\n", "my-key\r\n"}) {
    auto done = hash(input);
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_EQ(done.out, sha256_hex("my-key") + "\n");
  }
}

TEST(Key, HashRefusesWhatNoClientCouldSend) {
  for (const char* input : {"", "\n", "a b\n", "a\tb\n", "gr\xc3\xbcn\n"})
    EXPECT_EQ(hash(input).exit_code, 1) << input;
  EXPECT_EQ(hash(std::string(5000, 'x')).exit_code, 1);
}

TEST(Key, HashRefusesSeveralLines) {
  auto done = hash("my-key\nmore\n");
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_EQ(done.out, "");
  EXPECT_NE(done.err.find("more than one line"), std::string::npos) << done.err;
}

TEST(Key, HashWarnsOfAShortKey) {
  auto done = hash("hunter2\n");
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_NE(done.err.find("7 characters can be guessed"), std::string::npos) << done.err;
}

TEST(Key, HashTakesNoKeyFromArgv) { EXPECT_EQ(run_isogate({"key", "hash", "my-key"}).exit_code, 2); }

TEST(Key, HashPromptsOnATerminalWithoutEcho) {
  Terminal terminal({isogate_binary(), "key", "hash"});
  ASSERT_TRUE(terminal.shows("Key: ")) << terminal.screen();
  // The question comes before the echo is off; the flush on switching drops what was typed too early.
  for (int i = 0; i < 400 && !terminal.echo_is_off(); ++i) terminal.shows("\x01", 0.05);
  ASSERT_TRUE(terminal.echo_is_off());
  terminal.type("my-key\n");
  ASSERT_TRUE(terminal.shows(sha256_hex("my-key"))) << terminal.screen();
  EXPECT_EQ(terminal.everything().find("my-key"), std::string::npos);
}

TEST(Key, AnIgnoredInterruptEndsNoPrompt) {
  Terminal terminal({"sh", "-c", "trap '' INT; exec " + isogate_binary() + " key hash"});
  ASSERT_TRUE(terminal.shows("Key: ")) << terminal.screen();
  for (int i = 0; i < 400 && !terminal.echo_is_off(); ++i) terminal.shows("\x01", 0.05);
  terminal.type("\x03");
  terminal.type("my-key\n");
  EXPECT_TRUE(terminal.shows(sha256_hex("my-key"))) << terminal.screen();
}

TEST(Key, AnInterruptedPromptLeavesTheTerminalAsItWas) {
  Terminal terminal({"sh", "-c", isogate_binary() + " key hash; echo ended $?"});
  ASSERT_TRUE(terminal.shows("Key: ")) << terminal.screen();
  for (int i = 0; i < 400 && !terminal.echo_is_off(); ++i) terminal.shows("\x01", 0.05);
  ASSERT_TRUE(terminal.echo_is_off());
  terminal.type("\x03");
  for (int i = 0; i < 400 && terminal.echo_is_off(); ++i) terminal.shows("\x01", 0.05);
  EXPECT_FALSE(terminal.echo_is_off());
}

}  // namespace
}  // namespace isogate::test
