#include "gateway/supervisor/log_relay.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "lib/log.h"
#include "tests/support/program.h"

namespace isogate::supervisor {
namespace {

void print(const Fd& to, const std::string& text) {
  ASSERT_EQ(::write(to.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
}

class LogRelayTest : public testing::Test {
 protected:
  LogRelayTest() { EXPECT_TRUE(relay_.open(path_).ok()); }
  void drain() {
    relay_.drain();
    EXPECT_TRUE(relay_.flush());
  }
  [[nodiscard]] std::string content() const { return test::read_whole(path_); }
  // As on a disk that is full: no file of this process grows beyond ten bytes.
  static rlimit take_ten_bytes() {
    rlimit before{};
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    (void)::signal(SIGXFSZ, SIG_IGN);
    const rlimit full{10, before.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &full), 0);
    return before;
  }
  static void take_all(const rlimit& before) {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)::signal(SIGXFSZ, SIG_DFL);
  }
  test::TemporaryDirectory directory_;
  std::string path_ = directory_.path() + "/log";
  LogRelay relay_;
};

TEST_F(LogRelayTest, keeps_lines_of_two_children_whole) {
  auto one = relay_.new_writer(), two = relay_.new_writer();
  ASSERT_TRUE(one.ok() && two.ok());
  print(*one, "a1 begun");
  print(*two, "b1\nb2 begun");
  drain();
  EXPECT_EQ(content(), "b1\n");
  print(*one, ", ended\n");
  drain();
  EXPECT_EQ(content(), "b1\na1 begun, ended\n");
}

TEST_F(LogRelayTest, the_last_words_of_a_dying_child_are_kept) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  print(*one, "terminate called");
  one->reset();
  drain();
  EXPECT_EQ(content(), "terminate called\n");
  EXPECT_TRUE(relay_.sources().empty());
}

TEST_F(LogRelayTest, a_line_without_end_does_not_grow_for_ever) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  for (int i = 0; i < 40; ++i) {
    print(*one, std::string(4000, 'x'));
    drain();
  }
  EXPECT_LT(relay_.sources()[0].line.size(), 70000u);
  EXPECT_GT(content().size(), 90000u);
}

// A plugin, or a program that inherited it, may write there.
TEST_F(LogRelayTest, what_a_host_prints_is_no_line_of_the_log) {
  Pipe lines = std::move(*make_pipe());
  ASSERT_TRUE(log::start("supervisor", "info", std::move(lines.write)).ok());
  LogRelay relay;  // without a file, too
  auto one = relay.new_quoted_writer("mine");
  ASSERT_TRUE(one.ok());
  print(*one, "{\"event\":\"ready\"}\n\nterminate called");
  relay.drain();
  one->reset();
  relay.drain();
  EXPECT_TRUE(relay.sources().empty());
  ASSERT_TRUE(log::start("isogate", "info", Fd()).ok());  // which closes the pipe
  std::string logged(4096, '\0');
  logged.resize(static_cast<size_t>(std::max<ssize_t>(0, ::read(lines.read.get(), logged.data(), 4096))));
  const size_t first = logged.find("\"event\":\"host_stderr\",\"backend\":\"mine\",\"text\":\"{\\\"event");
  EXPECT_NE(first, logged.npos) << logged;
  EXPECT_NE(logged.find("\"text\":\"terminate called\"", first), logged.npos) << logged;
  EXPECT_EQ(std::count(logged.begin(), logged.end(), '\n'), 2) << logged;
}

TEST_F(LogRelayTest, a_rotation_reaches_running_children) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  print(*one, "before\n");
  drain();
  ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0);
  ASSERT_TRUE(relay_.reopen().ok());
  print(*one, "after\n");
  drain();
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
  drain();
  EXPECT_EQ(test::read_whole(path_ + ".1"), "still\n");
}

TEST_F(LogRelayTest, a_fifo_or_a_socket_is_no_log_file) {
  const std::string fifo = directory_.path() + "/fifo", socket = directory_.path() + "/socket";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  socket.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  for (const std::string& path : {fifo, socket}) EXPECT_FALSE(LogRelay().open(path).ok()) << path;
  const Fd reader(::open(fifo.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  EXPECT_FALSE(LogRelay().open(fifo).ok()) << "even though it is read now";
}

// It takes part of a line, and then nothing.
TEST_F(LogRelayTest, what_a_full_disk_does_not_take_is_counted_and_the_next_line_is_whole) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  const auto before = take_ten_bytes();
  print(*one, "first\nsecond\nthird\n");
  drain();
  print(*one, "fourth\n");
  drain();
  take_all(before);
  print(*one, "fifth\n");
  drain();
  const std::string all = content();
  EXPECT_TRUE(all.starts_with("first\nseco\nfifth\n{")) << all;
  EXPECT_NE(all.find("\"event\":\"log_lines_dropped\",\"lines\":3}\n"), all.npos) << all;
  print(*one, "sixth\n");
  drain();
  EXPECT_EQ(content(), all + "sixth\n") << "it is reported once";
}

// After an empty file, a whole one, and one that another process left within a line.
TEST_F(LogRelayTest, a_file_after_one_that_was_full_goes_on_with_a_whole_line) {
  auto one = relay_.new_writer();
  ASSERT_TRUE(one.ok());
  for (const auto& [found, then] :
       {std::pair("", ""), std::pair("whole\n", "whole\n"), std::pair("torn", "torn\n")}) {
    const auto before = take_ten_bytes();
    print(*one, "first\nsecond\n");
    drain();
    take_all(before);
    ASSERT_EQ(::rename(path_.c_str(), (path_ + ".1").c_str()), 0);
    directory_.file("log", found);
    ASSERT_TRUE(relay_.reopen().ok());
    print(*one, "third\n");
    drain();
    EXPECT_TRUE(content().starts_with(std::string(then) + "third\n{")) << content();
    ASSERT_EQ(::unlink(path_.c_str()), 0);
    ASSERT_TRUE(relay_.reopen().ok());
  }
}

TEST_F(LogRelayTest, what_a_process_before_left_within_a_line_is_ended_first) {
  LogRelay relay;
  ASSERT_TRUE(relay.open(directory_.file("before", "torn")).ok());
  auto one = relay.new_writer();
  ASSERT_TRUE(one.ok());
  print(*one, "next\n");
  relay.drain();
  EXPECT_TRUE(relay.flush());
  EXPECT_EQ(test::read_whole(directory_.path() + "/before"), "torn\nnext\n");
}

// A file that accepts no more bytes, like one whose server is gone.
TEST_F(LogRelayTest, a_file_that_hangs_delays_nobody_and_lines_are_counted) {
  const std::string path = directory_.path() + "/fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  Fd reader(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
  LogRelay relay;
  relay.use(Fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC)));
  auto one = relay.new_writer();
  ASSERT_TRUE(one.ok());
  const std::string line = std::string(999, 'x') + "\n";
  const auto begun = std::chrono::steady_clock::now();
  // The file's thread may have taken as much as waits.
  constexpr size_t kLines = 2 * LogFile::kMostWaiting / 1000 + 1000;
  for (size_t i = 0; i < kLines; ++i) {
    print(*one, line);
    relay.drain();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(20));
  EXPECT_FALSE(relay.flush());
  std::string got;
  const auto read_all = [&] {
    std::vector<char> buffer(1 << 16);
    for (ssize_t n = 0; (n = ::read(reader.get(), buffer.data(), buffer.size())) > 0;)
      got.append(buffer.data(), static_cast<size_t>(n));
  };
  for (size_t before = 1; got.size() != before;) {
    before = got.size();
    for (int i = 0; i < 100; ++i, ::usleep(5'000)) read_all();
  }
  EXPECT_TRUE(relay.flush());
  print(*one, "the last\n");
  relay.drain();
  for (int i = 0; i < 1000 && got.find("the last\n") == got.npos; ++i, ::usleep(10'000)) read_all();
  const size_t notice = got.find("log_lines_dropped");
  ASSERT_NE(notice, got.npos);
  const auto whole = static_cast<size_t>(std::count(got.begin(), got.end(), '\n')) - 2;
  EXPECT_NE(got.find("\"lines\":" + std::to_string(kLines - whole), notice), got.npos) << whole;
  EXPECT_GT(got.find("the last\n"), notice);
}

}  // namespace
}  // namespace isogate::supervisor
