// Programs on a terminal.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "tests/runner/box.h"

namespace isogate::test {
namespace {

// One program on a terminal, in a thread, with both ends of all its descriptors.
class Session {
 public:
  Session(Runner& runner, const std::string& script, const Identity& identity = {}) {
    command_ = shell(script, mark);
    command_.pty = true;
    command_.identity = identity;
    command_.stdin_fd = input.read.get();
    command_.stdout_fd = output.write.get();
    command_.control_fd = orders.read.get();
    command_.cancel_fd = cancel.get();
    command_.rows = 33;
    command_.cols = 111;
    thread_ = std::thread([this, &runner] {
      ending = runner.run(command_);
      output.write.reset();
    });
  }
  ~Session() {
    if (thread_.joinable()) {
      signal_event(cancel.get());
      drain();
      thread_.join();
    }
  }
  void type(const std::string& text) const {
    ASSERT_EQ(::write(input.write.get(), text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void order(uint32_t type, uint32_t a, uint32_t b = 0) const {
    const isogate_control record = {type, a, b, 0};
    ASSERT_EQ(::write(orders.write.get(), &record, sizeof record), static_cast<ssize_t>(sizeof record));
  }
  // Reads until `text` has been seen, or the end.
  bool wait_for(const std::string& text) {
    while (seen.find(text) == std::string::npos) {
      if (!read_some()) return false;
    }
    return true;
  }
  void drain() {
    while (read_some()) {
    }
  }
  void finish() {
    drain();
    thread_.join();
  }
  std::string mark = new_mark(), seen;
  Result<Ending> ending = Error{};
  Pipe input = std::move(*make_pipe()), output = std::move(*make_pipe()), orders = std::move(*make_pipe());
  Fd cancel = std::move(*make_event());

 private:
  bool read_some() {
    char buffer[4096];
    pollfd slot = {output.read.get(), POLLIN, 0};
    if (slot.fd < 0 || ::poll(&slot, 1, 30000) <= 0) return false;
    const ssize_t size = ::read(output.read.get(), buffer, sizeof buffer);
    if (size <= 0) return false;
    seen.append(buffer, static_cast<size_t>(size));
    return true;
  }
  Command command_{Site::host()};
  std::thread thread_;
};

class PtyTest : public RunnerTest {
 protected:
  void SetUp() override {
    RunnerTest::SetUp();
    if ((runner().abilities().capabilities & ISOGATE_CAP_PTY) == 0)
      GTEST_SKIP() << runner().abilities().missing;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, PtyTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

TEST_P(PtyTest, all_three_streams_are_a_terminal_of_the_given_size) {
  Session session(runner(),
                  "test -t 0 && test -t 1 && test -t 2 && echo terminal; stty size; : </dev/tty && echo "
                  "controlling; exit 6");
  session.finish();
  EXPECT_EQ(session.seen, "terminal\r\n33 111\r\ncontrolling\r\n");
  ASSERT_TRUE(session.ending.ok()) << session.ending.error().message;
  EXPECT_EQ(session.ending->exit_code, 6);
}

TEST_P(PtyTest, terminal_belongs_to_the_identity) {
  if (!is_root()) GTEST_SKIP() << "only root may change identities";
  Session session(runner(), "stat -c '%u %a' $(tty); : >$(tty) && echo opened", {true, 61998, 61998});
  session.finish();
  EXPECT_EQ(session.seen, "61998 600\r\nopened\r\n");
}

TEST_P(PtyTest, what_is_typed_is_read) {
  Session session(runner(), "stty -echo; echo ready; read line; echo \"got $line\"");
  ASSERT_TRUE(session.wait_for("ready"));
  session.type("some words\n");
  session.finish();
  EXPECT_NE(session.seen.find("got some words\r\n"), std::string::npos) << session.seen;
}

TEST_P(PtyTest, end_of_input_reaches_the_program) {
  Session session(runner(), "stty -echo; echo ready; cat; echo ended");
  ASSERT_TRUE(session.wait_for("ready"));
  session.type("line\nbegun");
  session.input.write.reset();
  session.finish();
  EXPECT_NE(session.seen.find("line\r\nbegunended\r\n"), std::string::npos) << session.seen;
}

TEST_P(PtyTest, end_of_input_waits_for_the_end_of_raw_mode) {
  Session session(runner(), "stty raw -echo; echo ready; sleep 1; stty -raw; echo cooked; cat; echo ended");
  ASSERT_TRUE(session.wait_for("ready"));
  session.input.write.reset();
  EXPECT_TRUE(session.wait_for("ended")) << session.seen;
}

TEST_P(PtyTest, resize_is_seen) {
  Session session(runner(), "trap 'stty size; exit 0' WINCH; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(session.wait_for("ready"));
  session.order(99, 1);  // of a later version: skipped
  session.order(ISOGATE_CONTROL_RESIZE, 50, 132);
  session.finish();
  EXPECT_NE(session.seen.find("50 132"), std::string::npos) << session.seen;
}

TEST_P(PtyTest, signal_reaches_the_process_group) {
  Session session(runner(), "trap 'echo interrupted; exit 9' INT; echo ready; while :; do sleep 0.05; done");
  ASSERT_TRUE(session.wait_for("ready"));
  session.order(ISOGATE_CONTROL_SIGNAL, 0);   // no signal
  session.order(ISOGATE_CONTROL_SIGNAL, 65);  // not one either
  session.order(ISOGATE_CONTROL_SIGNAL, SIGINT);
  session.finish();
  EXPECT_NE(session.seen.find("interrupted"), std::string::npos) << session.seen;
  EXPECT_EQ(session.ending->exit_code, 9);
}

TEST_P(PtyTest, control_c_typed_is_an_interrupt) {
  Session session(runner(), "cat; true");
  session.type("x\n");
  ASSERT_TRUE(session.wait_for("x\r\nx\r\n"));  // the echo, and cat's output
  session.type("\x03");
  session.finish();
  EXPECT_EQ(session.ending->term_signal, SIGINT);
  EXPECT_FALSE(session.ending->killed);
}

TEST_P(PtyTest, output_is_complete_for_a_slow_reader) {
  Session session(runner(), "stty -onlcr; seq 1 100000; printf end");
  ::usleep(300000);
  session.finish();
  std::string expected;
  for (int i = 1; i <= 100000; ++i) expected += std::to_string(i) + "\n";
  EXPECT_EQ(session.seen.size(), expected.size() + 3);
  EXPECT_TRUE(session.seen == expected + "end");
}

TEST_P(PtyTest, background_child_on_the_terminal_does_not_hold_the_run) {
  Session session(runner(), "trap '' HUP; setsid sleep 100 & sleep 100 & echo hi");
  session.finish();
  EXPECT_EQ(session.seen, "hi\r\n");
  EXPECT_TRUE(marked(session.mark).empty());
}

// As another exec of its agent may be, which opens the terminal by its name.
TEST_P(PtyTest, another_writer_on_the_terminal_does_not_hold_the_run) {
  for (const std::string writer : {"yes x", "sh -c 'while echo x; do sleep 0.02; done'"}) {
    Session session(runner(), "tty; read line");
    ASSERT_TRUE(session.wait_for("\r\n"));
    const std::string tty = session.seen.substr(0, session.seen.find('\r'));
    std::thread other(
        [&] { EXPECT_TRUE(runner().run(shell("exec timeout 20 " + writer + " > " + tty)).ok()); });
    EXPECT_TRUE(session.wait_for("x\r\n")) << session.seen;
    const auto start = std::chrono::steady_clock::now();
    session.type("\n");
    session.finish();
    EXPECT_LT(since(start), 10) << writer;
    other.join();
    ASSERT_TRUE(session.ending.ok()) << session.ending.error().message;
  }
}

TEST_P(PtyTest, cancel_ends_an_unread_run) {
  Session session(runner(), "yes");
  ASSERT_TRUE(there_within(session.mark, 2, 30));
  ::usleep(200000);
  signal_event(session.cancel.get());
  EXPECT_TRUE(gone_within(session.mark, 10));
  session.finish();
  EXPECT_TRUE(session.ending->killed);
}

TEST_P(PtyTest, reader_that_goes_away_does_not_hurt_the_host) {
  Session session(runner(), "sleep 0.2; seq 1 10000; exit 3");
  session.output.read.reset();
  session.finish();
  ASSERT_TRUE(session.ending.ok());
  EXPECT_EQ(session.ending->exit_code, 3);
}

TEST_P(PtyTest, program_not_found_is_reported_on_the_terminal) {
  Command command(Site::host());
  command.argv = {"no-such-program"};
  command.pty = true;
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok());
  EXPECT_EQ(output.ending->exit_code, 127);
  EXPECT_EQ(output.out, "isogate: cannot run `no-such-program`: No such file or directory\r\n");
}

TEST_P(PtyTest, signal_record_works_without_a_terminal) {
  auto orders = make_pipe();
  Command command = shell("trap 'exit 12' USR1; while :; do sleep 0.05; done", new_mark());
  command.control_fd = orders->read.get();
  Result<Ending> ending = Error{};
  std::thread thread([&] { ending = runner().run(command); });
  EXPECT_TRUE(there_within(command.env.back().second, 2, 30));
  const isogate_control record = {ISOGATE_CONTROL_SIGNAL, SIGUSR1, 0, 0};
  EXPECT_EQ(::write(orders->write.get(), &record, sizeof record), static_cast<ssize_t>(sizeof record));
  orders->write.reset();
  thread.join();
  EXPECT_EQ(ending->exit_code, 12);
}

}  // namespace
}  // namespace isogate::test
