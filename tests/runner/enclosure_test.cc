// Enclosures without a backend: a copy of this host's own mounts, a network of nothing, a filter that allows
// all.
#include "runner/enclosure.h"

#include <fcntl.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>

#include "runner/apart.h"
#include "tests/runner/box.h"

namespace isogate::test {
namespace {

constexpr uint32_t kUid = 61997;

std::vector<pid_t> own_children() {
  std::vector<pid_t> pids;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream list(thread.path() / "children");
    for (pid_t pid = 0; list >> pid;) pids.push_back(pid);
  }
  return pids;
}

std::vector<pid_t> inits() {
  std::vector<pid_t> found;
  for (const pid_t pid : own_children()) {
    std::string name;
    std::ifstream line("/proc/" + std::to_string(pid) + "/cmdline");
    std::getline(line, name, '\0');
    if (name == "init") found.push_back(pid);
  }
  return found;
}

template <typename Condition>
bool soon(Condition holds) {
  for (int i = 0; i < 600; ++i) {
    if (holds()) return true;
    ::usleep(5000);
  }
  return false;
}

class EnclosureTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root makes these namespaces without a user namespace";
    struct statx root {};
    ASSERT_EQ(::statx(AT_FDCWD, "/", 0, STATX_BASIC_STATS, &root), 0);
    if ((root.stx_attributes & STATX_ATTR_MOUNT_ROOT) == 0)
      GTEST_SKIP() << "in a chroot a mount namespace has no root of its own";
    runner_ = Runner::make({.use_leaf = false, .group = "isogate-enclosure"});
    enclosure_ = make(true);
    ASSERT_NE(enclosure_, nullptr);
  }
  void TearDown() override {
    if (enclosure_ == nullptr) return;
    runner_->release(std::move(enclosure_));
    EXPECT_TRUE(inits().empty()) << inits().size() << " inits are left";
  }

  std::shared_ptr<Enclosure> make(bool ahead, isogate_limits limits = {}) {
    EnclosureOptions options;
    auto profile = std::make_shared<EnclosureProfile>();
    profile->filter = {BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    profile->limits = {{RLIMIT_CORE, 0, 0}, {RLIMIT_NOFILE, 64, 64}};
    profile->inits_ahead = ahead;
    options.profile = profile;
    options.identity = {true, kUid, kUid};
    options.limits = limits;
    const auto made = run_apart([&]() -> Result<void> {
      if (::unshare(CLONE_NEWNS | CLONE_NEWNET) != 0) return os_error("unshare", errno);
      if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        return os_error("private", errno);
      options.mounts = Fd(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
      options.network = Fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
      return {};
    });
    EXPECT_TRUE(made.ok()) << made.error().message;
    auto enclosure = runner_->enclose(std::move(options));
    EXPECT_TRUE(enclosure.ok()) << enclosure.error().message;
    return enclosure ? *enclosure : nullptr;
  }

  Command shell_in(const std::string& script, const std::string& mark = "") const {
    Command command = shell(script, mark);
    command.identity = {true, kUid, kUid};
    command.enclosure = enclosure_;
    command.cwd = "/";
    return command;
  }

  std::unique_ptr<Runner> runner_;
  std::shared_ptr<Enclosure> enclosure_;
};

TEST_F(EnclosureTest, endings_are_the_programs_own) {
  for (int i = 0; i < 3; ++i) {  // on demand, then made ahead
    EXPECT_EQ(runner_->run(shell_in("exit 0"))->exit_code, 0);
    EXPECT_EQ(runner_->run(shell_in("exit 255"))->exit_code, 255);
    EXPECT_EQ(runner_->run(shell_in("kill -TERM $$"))->term_signal, SIGTERM);
    EXPECT_EQ(runner_->run(shell_in("kill -9 $$"))->term_signal, SIGKILL);
    EXPECT_FALSE(runner_->run(shell_in("kill -9 $$"))->killed);
  }
}

TEST_F(EnclosureTest, it_is_pid_2_of_its_own_namespace) {
  const auto output = run_captured(*runner_, shell_in("echo $$; id -u; echo /proc/[0-9]*; ulimit -n"));
  EXPECT_EQ(output.out, "2\n" + std::to_string(kUid) + "\n/proc/2\n64\n") << "its init is not to be seen";
}

TEST_F(EnclosureTest, orphans_end_with_it) {
  const std::string mark = new_mark();
  for (int i = 0; i < 5; ++i) {
    const auto ending = runner_->run(shell_in("for i in 1 2 3; do setsid sleep 100 & done; exit 4", mark));
    ASSERT_TRUE(ending.ok());
    EXPECT_EQ(ending->exit_code, 4);
    EXPECT_TRUE(marked(mark).empty()) << "when run() returns nothing is left";
  }
}

TEST_F(EnclosureTest, orphans_are_reaped_meanwhile) {
  const auto output = run_captured(
      *runner_,
      shell_in("for i in $(seq 50); do (sh -c ':' &) ; done; sleep 0.3; ps -e -o stat= | grep -c Z"));
  EXPECT_EQ(output.out, "0\n");
}

TEST_F(EnclosureTest, a_cancelled_one_dies_whole) {
  const std::string mark = new_mark();
  auto cancel = make_event();
  Command command = shell_in("trap '' TERM; setsid sleep 100 & sleep 100", mark);
  command.cancel_fd = cancel->get();
  std::thread canceller([&] {
    soon([&] { return marked(mark).size() >= 2; });
    signal_event(cancel->get());
  });
  const auto ending = runner_->run(command);
  canceller.join();
  ASSERT_TRUE(ending.ok());
  EXPECT_TRUE(ending->killed);
  EXPECT_TRUE(marked(mark).empty());
}

// A tenant cannot, but the kernel may: memory runs out, an operator errs.
TEST_F(EnclosureTest, a_killed_init_is_lost_and_never_success) {
  std::thread killer([&] {
    soon([] { return !inits().empty(); });
    ::usleep(100'000);
    for (const pid_t pid : inits()) ::kill(pid, SIGKILL);
  });
  const auto ending = runner_->run(shell_in("sleep 5; exit 0"));
  killer.join();
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().status, ISOGATE_LOST);
  EXPECT_EQ(runner_->run(shell_in("exit 3"))->exit_code, 3) << "the next one is not concerned";
}

TEST_F(EnclosureTest, one_that_is_killed_while_it_waits_is_replaced) {
  EXPECT_EQ(runner_->run(shell_in("true"))->exit_code, 0);
  std::vector<pid_t> waiting;
  ASSERT_TRUE(soon([&] {  // the same for a while: not that of the run before, which is about to end
    waiting = inits();
    ::usleep(50'000);
    return waiting.size() == 1 && inits() == waiting;
  })) << "one is made ahead";
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, waiting.front(), 0)));
  ASSERT_TRUE(process);
  ::kill(waiting.front(), SIGKILL);
  pollfd dead = {process.get(), POLLIN, 0};
  ASSERT_EQ(::poll(&dead, 1, 5000), 1);
  const auto ending = runner_->run(shell_in("exit 6"));
  ASSERT_TRUE(ending.ok()) << ending.error().message;
  EXPECT_EQ(ending->exit_code, 6);
}

TEST_F(EnclosureTest, many_at_once) {
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const auto ending = runner_->run(shell_in("exit " + std::to_string(t * 20 + i)));
        if (!ending.ok() || ending->exit_code != t * 20 + i) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(soon([] { return inits().size() <= 1; })) << inits().size() << " are left to be reaped";
}

TEST_F(EnclosureTest, without_inits_ahead_none_waits) {
  const auto other = make(false);
  Command command = shell_in("exit 5");
  command.enclosure = other;
  EXPECT_EQ(runner_->run(command)->exit_code, 5);
  EXPECT_TRUE(soon([] { return inits().empty(); }));
}

TEST_F(EnclosureTest, what_cannot_be_run_is_told) {
  Command command = shell_in("");
  command.argv = {"/no/such"};
  auto ending = runner_->run(command);
  ASSERT_TRUE(ending.ok());
  EXPECT_FALSE(ending->started);
  EXPECT_EQ(ending->exit_code, 127);
  command.argv = {"true"};
  command.cwd = "/no/such";
  ending = runner_->run(command);
  ASSERT_FALSE(ending.ok());
  EXPECT_EQ(ending.error().status, ISOGATE_INVALID_ARGUMENT);
  command.cwd = "/";
  command.argv.assign(60, std::string(100'000, 'x'));
  command.argv[0] = "/bin/true";
  ending = runner_->run(command);
  ASSERT_FALSE(ending.ok()) << "more than the kernel takes";
  EXPECT_EQ(ending.error().status, ISOGATE_INVALID_ARGUMENT);
}

TEST_F(EnclosureTest, limits_of_all_runs_and_of_one) {
  auto other = make(true, {96u << 20, 0, 40, 0});
  if (other == nullptr) GTEST_SKIP() << runner_->abilities().missing;
  Command command = shell_in("head -c 400M /dev/zero | tail -c 400M | wc -c");
  command.enclosure = other;
  auto ending = runner_->run(command);
  ASSERT_TRUE(ending.ok()) << ending.error().message;
  EXPECT_TRUE(ending->oom_killed);
  command.argv = shell("head -c 1M /dev/zero | tail -c 1M | wc -c", "").argv;
  ending = runner_->run(command);
  EXPECT_FALSE(ending->oom_killed) << "of the run before";
  EXPECT_EQ(ending->exit_code, 0);
  command.argv = shell("head -c 60M /dev/zero | tail -c 60M | wc -c", "").argv;
  command.limits.memory_bytes = 16u << 20;
  EXPECT_TRUE(runner_->run(command)->oom_killed) << "its own limit is lower";
  command.limits = {};
  EXPECT_FALSE(runner_->run(command)->oom_killed);
  command.enclosure.reset();
  runner_->release(std::move(other));
}

TEST_F(EnclosureTest, evidence_is_taken_inside) {
  const auto evidence = runner_->measure(enclosure_, isogate_evidence_request{});
  ASSERT_TRUE(evidence.ok()) << evidence.error().message;
  EXPECT_EQ(evidence->flags, ISOGATE_EVIDENCE_MEASURED | ISOGATE_EVIDENCE_NETWORK)
      << "no metadata address answers";
  EXPECT_EQ(evidence->uid, kUid);
  EXPECT_EQ(evidence->cap_effective | evidence->cap_permitted | evidence->cap_bounding |
                evidence->cap_inheritable | evidence->cap_ambient,
            0u);
  EXPECT_EQ(evidence->no_new_privs, 1u);
  EXPECT_EQ(evidence->seccomp_mode, 2u);
  EXPECT_LE(evidence->visible_processes, 1u);
  const auto own = runner_->measure({});
  ASSERT_TRUE(own.ok());
  EXPECT_NE(evidence->ns_pid, own->ns_pid);
  EXPECT_NE(evidence->ns_mnt, own->ns_mnt);
  EXPECT_NE(evidence->ns_net, own->ns_net);
  EXPECT_NE(evidence->ns_ipc, own->ns_ipc);
  EXPECT_NE(evidence->ns_uts, own->ns_uts);
}

}  // namespace
}  // namespace isogate::test
