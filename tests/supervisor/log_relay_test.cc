#include "gateway/supervisor/log_relay.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/program.h"

namespace isogate::supervisor {
namespace {

void print(const Fd& to, const std::string& text) {
  ASSERT_EQ(::write(to.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

class LogRelayTest : public testing::Test {
 protected:
  LogRelayTest() { EXPECT_TRUE(relay_.open(path_).ok()); }
  [[nodiscard]] std::string content() const { return test::read_whole(path_); }
  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/log";
  LogRelay relay_;
};

TEST_F(LogRelayTest, keeps_lines_of_two_children_whole) {
  auto one = relay_.new_writer(), two = relay_.new_writer();
  ASSERT_TRUE(one.ok() && two.ok());
  print(*one, "a1 begun");
  print(*two, "b1\nb2 begun");
  relay_.drain();
  EXPECT_EQ(content(), "b1\n");
  print(*one, ", ended\n");
  relay_.drain();
  EXPECT_EQ(content(), "b1\na1 begun, ended\n");
}

TEST_F(LogRelayTest, the_last_words_of_a_dying_child_are_kept) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  print(*one, "terminate called");
  one->reset();
  relay_.drain();
  EXPECT_EQ(content(), "terminate called\n");
  EXPECT_TRUE(relay_.sources().empty());
}

TEST_F(LogRelayTest, a_line_without_end_does_not_grow_for_ever) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  for (int i = 0; i < 40; ++i) {
    print(*one, std::string(4000, 'x'));
    relay_.drain();
  }
  EXPECT_LT(relay_.sources()[0].line.size(), 70000u);
  EXPECT_GT(content().size(), 90000u);
}

TEST_F(LogRelayTest, a_rotation_reaches_running_children) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  print(*one, "before\n");
  relay_.drain();
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0);
  ASSERT_TRUE(relay_.reopen().ok());
  print(*one, "after\n");
  relay_.drain();
  EXPECT_EQ(content(), "after\n");
  EXPECT_EQ(test::read_whole(path_ + ".1"), "before\n");
}

TEST_F(LogRelayTest, a_failed_rotation_keeps_the_old_file) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0);
  ASSERT_EQ(::mkdir(path_.c_str(), 0700), 0);
  EXPECT_FALSE(relay_.reopen().ok());
  print(*one, "still\n");
  relay_.drain();
  EXPECT_EQ(test::read_whole(path_ + ".1"), "still\n");
}

}  // namespace
}  // namespace isogate::supervisor
