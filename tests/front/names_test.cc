#include "gateway/front/base/names.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>
#include <vector>

namespace isogate::front {
namespace {

// Computed with Python: b32encode(sha256(Σ struct.pack("<Q", len(x)) + x).digest()[:16]).
TEST(SandboxId, IsTheDocumentedDigest) {
  EXPECT_EQ(sandbox_id("default", "local", "default"), "isg-htk4c6xdsoioubqmir33raa4hu");
  EXPECT_EQ(sandbox_id("", "", ""), "isg-twii5t5wwjln56futj6fattmra");
  EXPECT_EQ(sandbox_id("gw", "tenant-é", "Bob"), "isg-jqjkybzlsouq4d7tzckgy64pjy");
}

TEST(SandboxId, HasTheShapeEveryBackendCanUse) {
  std::string id = sandbox_id("default", std::string(1000, 'x'), "a");
  ASSERT_EQ(id.size(), 30u);
  EXPECT_EQ(id.substr(0, 4), "isg-");
  EXPECT_EQ(id.find_first_not_of("abcdefghijklmnopqrstuvwxyz234567", 4), std::string::npos);
}

TEST(SandboxId, NeverMeetsAnother) {
  const std::vector<std::vector<std::string>> all = {
      {"i", "t", "Bob"},  {"i", "t", "bob"},        {"i", "t", "a_b"}, {"i", "t", "a-b"}, {"i", "a", "b-c"},
      {"i", "a-b", "c"},  {"i", "ab", "c"},         {"i", "a", "bc"},  {"ia", "", "bc"},  {"", "ia", "bc"},
      {"i", "", "abc"},   {"i", "abc", ""},         {"j", "t", "Bob"}, {"i", "T", "Bob"}, {"it", "Bob", ""},
      {"i", "t", "Bob "}, {"i", "t", {"Bob\0", 4}},
  };
  std::set<std::string> ids;
  for (const auto& names : all) ids.insert(sandbox_id(names[0], names[1], names[2]));
  EXPECT_EQ(ids.size(), all.size());
}

TEST(AgentId, FollowsItsGrammar) {
  for (const char* good : {"a", "0", "Bob", "bob", "a_b", "a-b", "con", "a--", "A1_-"})
    EXPECT_TRUE(valid_agent_id(good)) << good;
  EXPECT_TRUE(valid_agent_id(std::string(63, 'x')));
  const std::vector<std::string> bad = {"",      ".",   "..",  "../x", "a/b",   "a%2fb",     "-a",
                                        "_a",    "a b", "a.b", "a\n",  "аdmin", {"a\0b", 3}, "é",
                                        "a\x7f", "@",   "a:b", "[",    "`",     "{",         "a\xff"};
  for (const std::string& id : bad) EXPECT_FALSE(valid_agent_id(id)) << id;
  EXPECT_FALSE(valid_agent_id(std::string(64, 'x')));
  EXPECT_FALSE(valid_agent_id(std::string(10000, 'x')));
}

TEST(ExecId, IsLowerCaseHex) {
  const std::string id = new_exec_id();
  EXPECT_EQ(id.size(), 32u);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos) << id;
  EXPECT_EQ(new_request_id().size(), 16u);
}

TEST(ExecId, NeverRepeatsWithinAThreadOrAmongThreads) {
  constexpr int kThreads = 4, kEach = 5000;
  std::vector<std::vector<std::string>> made(kThreads);
  std::vector<std::thread> threads;
  for (auto& ids : made)
    threads.emplace_back([&ids] {
      for (int i = 0; i < kEach; ++i) {
        ids.push_back(new_exec_id());
        ids.push_back(new_request_id());
      }
    });
  for (std::thread& thread : threads) thread.join();
  std::set<std::string> all;
  for (const auto& ids : made) all.insert(ids.begin(), ids.end());
  EXPECT_EQ(all.size(), static_cast<size_t>(kThreads) * kEach * 2);
}

TEST(ExecId, HasNoFixedBits) {
  std::string ones(32, '\0'), zeros(32, '\xF');
  for (int i = 0; i < 1000; ++i) {
    std::string id = new_exec_id();
    for (size_t d = 0; d < 32; ++d) {
      char value = static_cast<char>(id[d] <= '9' ? id[d] - '0' : id[d] - 'a' + 10);
      ones[d] = static_cast<char>(ones[d] | value);
      zeros[d] = static_cast<char>(zeros[d] & value);
    }
  }
  EXPECT_EQ(ones, std::string(32, '\xF'));
  EXPECT_EQ(zeros, std::string(32, '\0'));
}

}  // namespace
}  // namespace isogate::front
