// A start that does not reach its exec ends with its cancellation.
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "lib/fd.h"
#include "runner/exec/spawn/spawn.h"
#include "runner/exec/spawn/spawn_rescue.h"
#include "runner/exec/spawn/spawn_stack.h"
#include "tests/eventually.h"
#include "tests/runner/box.h"

namespace isogate::test {
namespace {

class RescueTest : public RunnerTest {};
INSTANTIATE_TEST_SUITE_P(Each, RescueTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

// A directory that takes half a millisecond to be resolved: links, each a long detour. A mount anywhere on
// this machine can make the kernel walk a path again, in which it counts all links again, and more than forty
// in both walks are ELOOP, which ends a search. So there are less than twenty.
class SlowDirectory {
 public:
  SlowDirectory() {
    std::string pattern = "/tmp/slow-XXXXXX";
    path = ::mkdtemp(pattern.data());
    ::chmod(path.c_str(), 0755);
    std::string round;
    for (int i = 0; i < 2000; ++i) round += "./";
    for (int i = 1; i < kLinks; ++i) {
      const std::string next = i + 1 == kLinks ? "nowhere" : std::to_string(i + 1);
      EXPECT_EQ(::symlink((round + next).c_str(), (path + "/" + std::to_string(i)).c_str()), 0);
    }
    for (int i = 0; i < 6000; ++i) search += path + "/1:";  // shorter than the 128 KiB of a variable
  }
  ~SlowDirectory() { [[maybe_unused]] const int done = std::system(("rm -rf " + path).c_str()); }
  SlowDirectory(const SlowDirectory&) = delete;
  SlowDirectory& operator=(const SlowDirectory&) = delete;
  std::string path, search;  // a PATH that takes seconds

 private:
  static constexpr int kLinks = 20;
};

TEST_P(RescueTest, a_slow_path_does_not_outlast_its_cancellation) {
  const SlowDirectory slow;
  Command command(Site::host());
  command.argv = {"no-such-program"};
  command.env = {{"PATH", slow.search}};
  double best = 1e9;
  for (int attempt = 0; attempt < 5 && best > 2;
       ++attempt) {  // the bound applies to a machine that is not overloaded
    auto cancel = make_event();
    ASSERT_TRUE(cancel.ok());
    command.cancel_fd = cancel->get();
    const auto start = std::chrono::steady_clock::now();
    std::jthread canceller([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      signal_event(cancel->get());
    });
    const Output output = run_captured(runner(), command);
    ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
    EXPECT_TRUE(output.ending->killed)
        << "the search ended by itself: it was not slow; exit code " << output.ending->exit_code
        << ", signal " << output.ending->term_signal << ", errno " << output.ending->os_errno
        << ", out of memory " << output.ending->oom_killed;
    best = std::min(best, since(start));
  }
  EXPECT_LE(best, 2);
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> found;
  std::error_code gone;
  std::filesystem::directory_iterator each("/proc/" + std::to_string(pid) + "/task", gone);
  for (; !gone && each != std::filesystem::directory_iterator(); each.increment(gone)) {
    std::ifstream file(each->path() / "children");
    for (pid_t child = 0; file >> child;) found.push_back(child);
  }
  return found;
}

bool has_ended(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return text.empty() || text.find(") Z ") != std::string::npos || text.find(") X ") != std::string::npos;
}

// Until its exec a child runs in the memory of the runner, which uses that again afterwards.
TEST_P(RescueTest, a_child_whose_reaper_is_killed_before_its_exec_ends_before_the_run) {
  if (GetParam() != Kind::reaper) GTEST_SKIP() << "without a reaper";
  const SlowDirectory slow;
  Command command(Site::host());
  command.argv = {"no-such-program"};
  command.env = {{"PATH", slow.search}};
  pid_t reaper = 0, child = 0;
  std::jthread killer([&] {
    eventually(10, [&] {
      for (const pid_t each : children_of(::getpid()))
        if (const auto below = children_of(each); !below.empty()) reaper = each, child = below.front();
      return child != 0;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    if (reaper != 0) ::kill(reaper, SIGKILL);
  });
  const Output output = run_captured(runner(), command);
  killer.join();
  ASSERT_NE(child, 0) << "it was not seen";
  ASSERT_FALSE(output.ending.ok());
  EXPECT_EQ(output.ending.error().status, ISOGATE_LOST);
  EXPECT_TRUE(has_ended(child));
}

TEST_P(RescueTest, a_program_killed_at_its_cancellation_was_cancelled) {
  auto cancel = make_event();
  ASSERT_TRUE(cancel.ok());
  Command command = shell("kill -KILL $$");
  command.cancel_fd = cancel->get();
  const Output by_itself = run_captured(runner(), command);
  ASSERT_TRUE(by_itself.ending.ok());
  EXPECT_FALSE(by_itself.ending->killed);
  EXPECT_EQ(by_itself.ending->term_signal, 9);
}

// A start whose program does not exist yet, or never will.
class UnbornTest : public testing::Test {
 protected:
  void SetUp() override {
    cancel_ = std::move(*make_event());
    signal_event(cancel_.get());
    bystander_ = ::fork();
    if (bystander_ == 0) {
      ::pause();
      ::_exit(0);
    }
    pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, bystander_, 0)));
    ASSERT_TRUE(pidfd_);
    ASSERT_TRUE(rescuer_.start().ok());
  }
  void TearDown() override {
    ::kill(bystander_, SIGKILL);
    ::waitpid(bystander_, nullptr, 0);
  }
  bool killed_within(int milliseconds) const {
    pollfd slot = {pidfd_.get(), POLLIN, 0};
    return ::poll(&slot, 1, milliseconds) > 0;
  }
  Fd cancel_, pidfd_;
  pid_t bystander_ = -1;
  SpawnRescuer rescuer_;
};

// The number in `pidfd` may belong to any file until the child has reported itself.
TEST_F(UnbornTest, nobody_is_killed_in_its_place) {
  int32_t stage = kStageBorn;
  StartUnderWay start{.cancel_fd = cancel_.get(), .pidfd = pidfd_.get(), .stage = &stage};
  const SpawnRescuer::Watch watch(rescuer_, start);
  EXPECT_FALSE(killed_within(500));
  __atomic_store_n(&stage, int32_t{kStageGroup}, __ATOMIC_RELEASE);
  EXPECT_TRUE(killed_within(2000)) << "nothing is rescued at all";
}

TEST_F(UnbornTest, a_failed_clone_leaves_no_descriptor_behind) {
  SpawnStackPool stacks;
  const auto stack = stacks.take();
  ASSERT_TRUE(stack.ok());
  SpawnPlan plan;
  plan.stack = (*stack)->program;
  plan.stack_size = SpawnStack::kSize;
  plan.report = (*stack)->report;
  plan.instead = raw_succeed;
  plan.leaf_fd = pidfd_.get();  // no directory: the kernel refuses after it has created the pidfd, or before
  int pidfd = pidfd_.get(), pid = 0;
  EXPECT_LT(raw_spawn(plan, &pidfd, &pid), 0);
  EXPECT_EQ(pidfd, -1);
}

}  // namespace
}  // namespace isogate::test
