// Nothing of a program is left when run() returns, whatever the program did.
#include "runner/exec/tree/tree.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <thread>

#include "tests/runner/box.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

using Clock = std::chrono::steady_clock;

class TreeTest : public RunnerTest {
 protected:
  // Starts the script in a thread, cancels it after `ready`, and returns its ending.
  Result<Ending> cancel_when(const std::string& script, const std::string& mark, size_t processes) {
    auto cancel = make_event();
    Command command = shell(script, mark);
    command.cancel_fd = cancel->get();
    Result<Ending> ending = Error{};
    std::thread thread([&] { ending = runner().run(command); });
    EXPECT_TRUE(there_within(mark, processes, 30)) << marked(mark).size();
    signal_event(cancel->get());
    thread.join();
    return ending;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, TreeTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

TEST_P(TreeTest, background_child_does_not_hold_the_run) {
  const std::string mark = new_mark();
  const auto start = Clock::now();
  const auto output = run("sleep 100 & echo hi", mark);
  EXPECT_LT(since(start), 50);
  EXPECT_EQ(output.out, "hi\n");
  EXPECT_EQ(output.ending->exit_code, 0);
  EXPECT_FALSE(output.ending->killed);
  EXPECT_TRUE(marked(mark).empty());
}

TEST_P(TreeTest, daemons_die_with_the_program_however_detached) {
  for (const std::string script :
       {"setsid sleep 100 & sleep 0.1", "nohup sleep 100 >/dev/null 2>&1 & sleep 0.1",
        "(setsid sh -c 'sleep 100 & sleep 100 & exit' &) ; sleep 0.2",
        "trap '' HUP TERM INT; (trap '' HUP TERM INT; setsid setsid sleep 100 >&- 2>&- <&- &) ; sleep 0.1; "
        "exit 3"}) {
    const std::string mark = new_mark();
    const auto output = run(script, mark);
    ASSERT_TRUE(output.ending.ok());
    EXPECT_TRUE(marked(mark).empty()) << script;
  }
}

TEST_P(TreeTest, closed_streams_are_not_an_end) {
  const auto start = Clock::now();
  const auto output = run("exec >&- 2>&- <&-; sleep 0.5; exit 4");
  EXPECT_GE(since(start), 0.5);
  EXPECT_EQ(output.ending->exit_code, 4);
}

TEST_P(TreeTest, cancel_kills_what_ignores_every_signal) {
  const std::string mark = new_mark();
  const auto ending =
      cancel_when("trap '' TERM INT HUP QUIT; sleep 100 & while :; do sleep 1; done", mark, 3);
  ASSERT_TRUE(ending.ok());
  EXPECT_TRUE(ending->killed);
  EXPECT_EQ(ending->term_signal, SIGKILL);
  EXPECT_TRUE(marked(mark).empty());
}

TEST_P(TreeTest, cancel_before_the_start_starts_nothing) {
  const std::string mark = new_mark();
  auto cancel = make_event();
  signal_event(cancel->get());
  Command command = shell("touch /nonexistent", mark);
  command.cancel_fd = cancel->get();
  const auto ending = runner().run(command);
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().status, ISOGATE_CANCELLED);
}

TEST_P(TreeTest, an_end_before_the_cancel_is_not_a_kill) {
  auto cancel = make_event();
  Command command = shell("exit 5");
  command.cancel_fd = cancel->get();
  const auto ending = runner().run(command);
  signal_event(cancel->get());
  EXPECT_FALSE(ending->killed);
  EXPECT_EQ(ending->exit_code, 5);
}

TEST_P(TreeTest, fork_bomb_is_gone_after_cancel) {
  if ((runner().abilities().capabilities & ISOGATE_CAP_LIMIT_PIDS) == 0) {
    GTEST_SKIP() << "a bomb must be bounded, and pids cannot be limited here: "
                 << runner().abilities().missing;
  }
  const double bound = GetParam() == Kind::leaf ? 1.0 : 3.0;  // of a machine that is not overloaded
  double best = 1e9;
  for (int attempt = 0; attempt < 5 && best > bound; ++attempt) {
    auto cancel = make_event();
    const std::string mark = new_mark();
    Command command = shell("", mark);
    command.argv = {ISOGATE_BUILD_DIR "/bin/runner_bomb"};
    command.cancel_fd = cancel->get();
    command.limits.set(ISOGATE_LIMIT_PIDS, 300);
    Result<Ending> ending = Error{};
    std::thread thread([&] { ending = runner().run(command); });
    EXPECT_TRUE(there_within(mark, 250, 60)) << marked(mark).size();
    const auto start = Clock::now();
    signal_event(cancel->get());
    thread.join();
    best = std::min(best, since(start));
    ASSERT_TRUE(ending.ok()) << ending.error().message;
    EXPECT_TRUE(ending->killed);
    EXPECT_FALSE(ending->left_behind);
    EXPECT_TRUE(marked(mark).empty());
  }
  EXPECT_LE(best, bound);
}

TEST_P(TreeTest, a_thousand_stopped_children_are_gone) {
  const std::string mark = new_mark();
  const auto output =
      run("i=0; while [ $i -lt 1000 ]; do sh -c 'trap \"\" TERM; kill -STOP $$; sleep 100' & i=$((i+1)); "
          "done; sleep 0.2",
          mark);
  ASSERT_TRUE(output.ending.ok());
  EXPECT_FALSE(output.ending->left_behind);
  EXPECT_TRUE(marked(mark).empty());
}

TEST_P(TreeTest, zombies_of_a_long_run_do_not_pile_up) {
  if (GetParam() == Kind::leaf) GTEST_SKIP() << "init reaps orphans of a leaf";
  const auto output =
      run("i=0; while [ $i -lt 50 ]; do (true &); i=$((i+1)); done; sleep 0.3; "
          "ps -o stat= --ppid $(ps -o ppid= -p $$) | grep -c Z");
  EXPECT_EQ(output.out, "0\n");
}

TEST_P(TreeTest, works_again_after_a_tree_was_killed) {
  for (int i = 0; i < 30; ++i) {
    const auto killed = run("sleep 100 & exit 1");
    ASSERT_EQ(killed.ending->exit_code, 1);
    const auto next =
        run("(echo fine) | cat");  // with children: those of a spent leaf would be killed at once
    ASSERT_EQ(next.out, "fine\n");
    ASSERT_EQ(next.ending->exit_code, 0);
  }
  EXPECT_TRUE(notices().empty()) << notices().front();
}

TEST_P(TreeTest, other_runs_are_spared) {
  const std::string mark = new_mark();
  auto cancel = make_event();
  Command other = shell("sleep 100 & sleep 100", mark);
  other.cancel_fd = cancel->get();
  std::thread thread([&] { (void)runner().run(other); });
  ASSERT_TRUE(there_within(mark, 3, 30));
  for (int i = 0; i < 20; ++i) (void)run("sleep 100 & setsid sleep 100 &");
  EXPECT_EQ(marked(mark).size(), 3u);
  signal_event(cancel->get());
  thread.join();
  EXPECT_TRUE(marked(mark).empty());
}

// The walk itself, both ways, below a separate process.
class WalkTest : public testing::TestWithParam<TreeWalk> {};
std::string walk_name(const testing::TestParamInfo<TreeWalk>& walk) {
  return walk.param == TreeWalk::children ? "children" : "scan";
}
INSTANTIATE_TEST_SUITE_P(Each, WalkTest, testing::Values(TreeWalk::children, TreeWalk::scan), walk_name);

// Replaces this process.
[[noreturn]] void become(const std::vector<std::string>& arguments, const std::string& mark) {
  std::vector<char*> argv;
  for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::string variable = "M=" + mark;
  char* const envp[] = {variable.data(), nullptr};
  ::execve(argv[0], argv.data(), envp);
  ::_exit(1);
}

TEST_P(WalkTest, finds_and_kills_descendants_only) {
  if (GetParam() == TreeWalk::children && raw_tree_walk() != TreeWalk::children) {
    GTEST_SKIP() << "this kernel has no /proc/PID/task/TID/children";
  }
  const std::string mark = new_mark(), spared = new_mark();
  const pid_t bystander = ::fork();
  if (bystander == 0) become({"/bin/sleep", "100"}, spared);
  const pid_t root = ::fork();
  if (root == 0) {
    ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    if (::fork() == 0) {
      become(
          {"/bin/sh", "-c", "sleep 100 & (sleep 100 & sleep 100 &) ; setsid sh -c 'sleep 100 & wait' & wait"},
          mark);
    }
    while (marked(mark).size() < 5) ::usleep(10000);
    for (int i = 0; i < 100; ++i) {
      raw_kill_descendants(::getpid(), GetParam());
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
      if (::waitpid(-1, nullptr, WNOHANG) < 0) ::_exit(0);
      ::usleep(2000);
    }
    ::_exit(2);
  }
  int status = -1;
  ::waitpid(root, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(marked(mark).empty());
  EXPECT_EQ(::waitpid(bystander, nullptr, WNOHANG), 0);
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
}

}  // namespace
}  // namespace isogate::test
