#include "lib/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <string>

namespace isogate {
namespace {

using namespace std::chrono_literals;
using How = ProgramEnd::How;
using Clock = std::chrono::steady_clock;

Program shell(const std::string& script) {
  Program program;
  program.path = "sh";
  program.arguments = {"sh", "-c", script};
  program.environment = {"PATH=/usr/bin:/bin", "GREETING=hello"};
  program.files = {Program::kNull, Program::kOutput, Program::kOutput};
  program.time = 60s;
  program.most_output = 1024;
  return program;
}

bool runs(const std::string& pid) { return ::kill(std::stoi(pid), 0) == 0; }

TEST(RunProgram, its_output_and_its_end_are_read) {
  const auto end = run_program(shell("echo $GREETING; echo there >&2; exit 7"));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kEnded);
  EXPECT_EQ(end->output, "hello\nthere\n");
  EXPECT_EQ(end->exit_code(), 7);
}

TEST(RunProgram, a_signal_that_killed_it_is_known) {
  const auto end = run_program(shell("kill -SEGV $$"));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kEnded);
  EXPECT_TRUE(WIFSIGNALED(end->wait_status));
  EXPECT_EQ(end->exit_code(), 128 + SIGSEGV);
}

TEST(RunProgram, what_it_leaves_running_is_killed_and_not_waited_for) {
  const auto started = Clock::now();
  const auto end = run_program(shell("sleep 3600 & echo $!"));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kEnded);
  EXPECT_LT(Clock::now() - started, 30s);
  ASSERT_FALSE(end->output.empty());
  for (int tries = 0; tries < 1000 && runs(end->output); ++tries) ::usleep(10'000);
  EXPECT_FALSE(runs(end->output));
}

TEST(RunProgram, what_it_leaves_running_may_not_write_on_and_on) {
  Program program = shell("yes & sleep 0.1; exit 5");
  program.drops_output = true;
  const auto end = run_program(std::move(program));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kEnded);
  EXPECT_EQ(end->exit_code(), 5);
}

TEST(RunProgram, all_that_it_wrote_just_before_its_end_is_read) {
  for (int i = 0; i < 50; ++i) {
    Program program = shell("head -c 60000 /dev/zero");
    program.most_output = 1 << 20;
    const auto end = run_program(std::move(program));
    ASSERT_TRUE(end) << end.error().message;
    ASSERT_EQ(end->how, How::kEnded);
    ASSERT_EQ(end->output.size(), 60000U);
  }
}

TEST(RunProgram, it_goes_on_after_it_closed_its_output) {
  const auto end = run_program(shell("exec >&- 2>&-; sleep 0.2; exit 3"));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kEnded);
  EXPECT_EQ(end->exit_code(), 3);
}

TEST(RunProgram, one_that_takes_too_long_is_killed) {
  Program program = shell("echo before; sleep 3600");
  program.time = 300ms;
  const auto end = run_program(std::move(program));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kLate);
  EXPECT_EQ(end->exit_code(), 128 + SIGKILL);
}

TEST(RunProgram, a_cancelled_one_is_killed) {
  const auto cancel = make_event();
  ASSERT_TRUE(cancel);
  signal_event(cancel->get());
  Program program = shell("sleep 3600");
  program.cancel_fd = cancel->get();
  const auto end = run_program(std::move(program));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kCancelled);
}

TEST(RunProgram, more_output_than_it_may_write_ends_it) {
  const auto end = run_program(shell("yes"));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kFlooded);
  EXPECT_EQ(end->output.size(), 1024U);
}

TEST(RunProgram, or_the_rest_of_its_output_is_dropped) {
  Program program = shell("head -c 1000000 /dev/zero; exit 4");
  program.drops_output = true;
  const auto end = run_program(std::move(program));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->how, How::kEnded);
  EXPECT_EQ(end->output.size(), 1024U);
  EXPECT_EQ(end->exit_code(), 4);
}

TEST(RunProgram, it_has_no_descriptor_but_those_it_was_given) {
  const Fd inherited(::dup(0));  // without close-on-exec
  ASSERT_TRUE(inherited);
  const auto end = run_program(shell("exec ls /proc/self/fd"));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->output, "0\n1\n2\n3\n") << "3: the directory that it reads";
}

TEST(RunProgram, it_starts_in_the_directory) {
  const Fd directory(::open("/usr", O_PATH | O_DIRECTORY | O_CLOEXEC));
  Program program = shell("pwd");
  program.directory = directory.get();
  const auto end = run_program(std::move(program));
  ASSERT_TRUE(end) << end.error().message;
  EXPECT_EQ(end->output, "/usr\n");
}

TEST(RunProgram, one_that_does_not_exist_is_named) {
  Program program = shell("");
  program.path = "/no/such/program";
  const auto end = run_program(std::move(program));
  ASSERT_FALSE(end);
  EXPECT_EQ(end.error().message, "cannot run `/no/such/program`: No such file or directory");
}

}  // namespace
}  // namespace isogate
