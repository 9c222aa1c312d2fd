// Enclosures without a backend: a copy of this host's own mounts, an empty network, a filter that allows
// everything.
#include "runner/enclosure/enclosure.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "runner/exec/apart.h"
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

// The init of the program with this mark. -1: there is none yet.
pid_t init_of(const std::string& mark) {
  const auto programs = marked(mark);
  for (const pid_t init : inits()) {
    const std::string pid = std::to_string(init);
    std::ifstream list("/proc/" + pid + "/task/" + pid + "/children");
    for (pid_t child = 0; list >> child;)
      if (std::find(programs.begin(), programs.end(), child) != programs.end()) return init;
  }
  return -1;
}

template <typename Condition>
bool soon(Condition holds) {
  for (int i = 0; i < 6000; ++i) {
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
      GTEST_SKIP() << "in a chroot a mount namespace does not have its own root";
    runner_ = Runner::make({.use_leaf = false, .group = "isogate-enclosure"});
    site_ = make(true);
    ASSERT_TRUE(site_.has_value());
  }
  void TearDown() override {
    if (!site_) return;
    const auto released = runner_->release(*site_);
    EXPECT_TRUE(released.ok()) << released.error().message;
    EXPECT_TRUE(inits().empty()) << inits().size() << " inits are left";
  }

  // Any part of it may be changed before it is created.
  using Change = std::function<void(EnclosureOptions&, EnclosureProfile&)>;
  std::optional<Site> make(bool ahead, Limits limits = {}, const Change& change = {}) {
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
    options.root = *mark_of(AT_FDCWD, "/");
    if (change) change(options, *profile);
    auto enclosure = runner_->enclose(std::move(options));
    EXPECT_TRUE(enclosure.ok()) << enclosure.error().message;
    return enclosure ? std::optional<Site>(*enclosure) : std::nullopt;
  }

  Command shell_in(const std::string& script, const std::string& mark = "") const {
    Command command = shell(script, mark);
    command.identity = {true, kUid, kUid};
    command.site = *site_;
    command.cwd = "/";
    return command;
  }

  std::string namespaces() const {
    return run_captured(*runner_, shell_in("readlink /proc/self/ns/pid /proc/self/ns/ipc /proc/self/ns/mnt"))
        .out;
  }
  // Until a run finds an init that stays for the next one.
  void settle() const {
    ASSERT_TRUE(soon([this] {
      ::usleep(20'000);
      const std::string found = namespaces();
      return !found.empty() && namespaces() == found;
    }));
  }

  std::unique_ptr<Runner> runner_;
  std::optional<Site> site_;
};

TEST_F(EnclosureTest, endings_are_the_programs_own) {
  for (int i = 0; i < 3; ++i) {  // on demand, then made in advance
    EXPECT_EQ(runner_->run(shell_in("exit 0"))->exit_code, 0);
    EXPECT_EQ(runner_->run(shell_in("exit 255"))->exit_code, 255);
    EXPECT_EQ(runner_->run(shell_in("kill -TERM $$"))->term_signal, SIGTERM);
    EXPECT_EQ(runner_->run(shell_in("kill -9 $$"))->term_signal, SIGKILL);
    EXPECT_FALSE(runner_->run(shell_in("kill -9 $$"))->killed);
  }
}

TEST_F(EnclosureTest, it_is_pid_2_of_its_own_namespace) {
  const auto output = run_captured(*runner_, shell_in("echo $$; id -u; echo /proc/[0-9]*; ulimit -n"));
  EXPECT_EQ(output.out, "2\n" + std::to_string(kUid) + "\n/proc/2\n64\n") << "its init is not visible";
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

// A tenant cannot kill it, but the kernel or an operator can.
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
  EXPECT_EQ(runner_->run(shell_in("exit 3"))->exit_code, 3) << "the next exec is not affected";
}

TEST_F(EnclosureTest, one_that_is_killed_while_it_waits_is_replaced) {
  EXPECT_EQ(runner_->run(shell_in("true"))->exit_code, 0);
  std::vector<pid_t> waiting;
  ASSERT_TRUE(soon([&] {  // the same for a while: not that of the previous run, which is about to end
    waiting = inits();
    ::usleep(50'000);
    return waiting.size() == 1 && inits() == waiting;
  })) << "one is made in advance";
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
  EXPECT_TRUE(soon([] { return inits().size() <= 2; })) << inits().size() << " are not reaped";
}

// After the first run, whose init was made on demand, and one of the keeper's.
TEST_F(EnclosureTest, a_run_that_left_nothing_is_followed_in_its_namespaces) {
  settle();
  const std::string first = namespaces();
  EXPECT_EQ(namespaces(), first);
  EXPECT_EQ(run_captured(*runner_, shell_in("exit 9")).ending->exit_code, 9);
  EXPECT_EQ(run_captured(*runner_, shell_in("kill -9 $$")).ending->term_signal, SIGKILL);
  Command late = shell_in("");
  late.argv = {"/no/such"};
  EXPECT_FALSE(runner_->run(late)->started);
  EXPECT_EQ(namespaces(), first);
  const auto output = run_captured(*runner_, shell_in("echo /proc/[0-9]*; ls -A /dev/shm; echo $PPID"));
  const std::string pid = output.out.substr(0, output.out.find('\n'));
  EXPECT_EQ(output.out, pid + "\n1\n") << "it sees itself alone";
  EXPECT_TRUE(runner_->run(shell_in("exit 0"))->cpu_ns < 1'000'000'000) << "of this run alone";
}

TEST_F(EnclosureTest, a_run_that_left_something_is_followed_in_others) {
  for (const char* leaves :
       {"sleep 100 &", "setsid sleep 100 > /dev/null 2>&1 &", "echo secret > /dev/shm/kept",
        "mkdir /dev/shm/kept", "touch /dev/shm", "ipcmk -M 4096", "ipcmk -S 1", "ipcmk -Q", "kill -USR1 1",
        "kill -KILL 1; kill -42 1"}) {
    settle();
    const std::string before = namespaces();
    ASSERT_EQ(namespaces(), before);
    ASSERT_EQ(run_captured(*runner_, shell_in(leaves)).ending->exit_code, 0) << leaves;
    EXPECT_NE(namespaces(), before) << leaves;
    EXPECT_EQ(run_captured(*runner_, shell_in("ls -A /dev/shm; ipcs -m -s -q | grep -c '^0x'")).out, "0\n")
        << leaves;
  }
}

TEST_F(EnclosureTest, a_run_that_was_killed_is_followed_in_others) {
  settle();
  const std::string before = namespaces();
  const std::string mark = new_mark();
  const auto cancel = make_event();
  Command command = shell_in("sleep 100", mark);
  command.cancel_fd = cancel->get();
  std::thread canceller([&] {
    soon([&] { return !marked(mark).empty(); });
    signal_event(cancel->get());
  });
  const auto ending = runner_->run(command);
  canceller.join();
  ASSERT_TRUE(ending.ok()) << ending.error().message;
  EXPECT_TRUE(ending->killed);
  EXPECT_NE(namespaces(), before);
}

// It may have got a descriptor of the other's /proc or /dev/shm.
TEST_F(EnclosureTest, a_run_beside_another_is_followed_in_others) {
  settle();
  const std::string before = namespaces(), mark = new_mark();
  const auto cancel = make_event();
  Command lasts = shell_in("sleep 100", mark);
  lasts.cancel_fd = cancel->get();
  std::thread other([&] { EXPECT_TRUE(runner_->run(lasts)->killed); });
  EXPECT_TRUE(soon([&] { return !marked(mark).empty(); }));
  std::string last = before;
  for (int i = 0; i < 4; ++i) {
    const std::string now = namespaces();
    EXPECT_NE(now, last);
    last = now;
  }
  signal_event(cancel->get());
  other.join();
  settle();
}

// Which the end of a run beside it has asked for.
TEST_F(EnclosureTest, what_a_run_has_left_stays_beside_one_made_in_advance) {
  settle();
  const std::string before = namespaces(), mark = new_mark();
  auto input = make_pipe();
  Command lasts = shell_in("cat", mark);
  lasts.stdin_fd = input->read.get();
  std::thread other([&] { EXPECT_EQ(runner_->run(lasts)->exit_code, 0); });
  EXPECT_TRUE(soon([&] { return !marked(mark).empty(); }));
  EXPECT_NE(namespaces(), before);
  EXPECT_TRUE(soon([] {
    const auto found = inits();
    ::usleep(200'000);
    return found.size() == 2 && inits() == found;
  })) << "none is made in advance";
  input->write.reset();
  other.join();
  EXPECT_EQ(namespaces(), before);
}

TEST_F(EnclosureTest, the_cpu_time_of_earlier_runs_is_not_counted) {
  settle();
  const std::string before = namespaces();
  const auto busy = runner_->run(shell_in("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done"));
  ASSERT_TRUE(busy.ok());
  ASSERT_EQ(namespaces(), before);
  const auto leaves = runner_->run(shell_in("sleep 100 &"));
  ASSERT_TRUE(leaves.ok());
  EXPECT_LT(leaves->cpu_ns, busy->cpu_ns / 2);
}

TEST_F(EnclosureTest, a_signal_that_came_late_is_nobodys) {
  settle();
  const std::string before = namespaces();
  for (int i = 0; i < 50; ++i) {
    int control[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, control), 0);
    const Fd ours(control[0]), theirs(control[1]);
    Command command = shell_in("exit 7");
    command.control_fd = theirs.get();
    std::thread sender([&] {
      ::usleep(static_cast<useconds_t>(i * 40));
      const isogate_control order = {ISOGATE_CONTROL_SIGNAL, SIGTERM, 0, 0};
      (void)!::write(ours.get(), &order, sizeof order);
    });
    const auto ending = runner_->run(command);
    sender.join();
    ASSERT_TRUE(ending.ok()) << ending.error().message;
    EXPECT_TRUE(ending->exit_code == 7 || ending->term_signal == SIGTERM);
    const auto next = runner_->run(shell_in("exit 8"));
    ASSERT_TRUE(next.ok()) << next.error().message;
    ASSERT_EQ(next->exit_code, 8) << i;
  }
  EXPECT_EQ(namespaces(), before);
}

TEST_F(EnclosureTest, used_ones_that_were_killed_or_waited_long_are_replaced) {
  settle();
  const std::string before = namespaces();
  for (const pid_t pid : inits()) {
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    ASSERT_TRUE(process);
    ::kill(pid, SIGKILL);
    pollfd dead = {process.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&dead, 1, 5000), 1);
  }
  const auto ending = runner_->run(shell_in("exit 6"));
  ASSERT_TRUE(ending.ok()) << ending.error().message;
  EXPECT_EQ(ending->exit_code, 6);
  settle();
  EXPECT_NE(namespaces(), before);
  const auto start = std::chrono::steady_clock::now();
  while (!inits().empty() && since(start) < 60) ::usleep(200'000);
  EXPECT_TRUE(inits().empty()) << "nobody has used them for a minute";
}

TEST_F(EnclosureTest, without_inits_ahead_none_waits) {
  const auto other = make(false);
  Command command = shell_in("exit 5");
  command.site = *other;
  EXPECT_EQ(runner_->run(command)->exit_code, 5);
  EXPECT_TRUE(soon([] { return inits().empty(); }));
}

TEST_F(EnclosureTest, what_cannot_be_run_is_reported) {
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
  ASSERT_FALSE(ending.ok()) << "more than the kernel accepts";
  EXPECT_EQ(ending.error().status, ISOGATE_INVALID_ARGUMENT);
}

TEST_F(EnclosureTest, a_program_that_was_just_written_is_waited_for) {
  std::string path = "/tmp/isogate-enclosure-XXXXXX";
  Fd writer(::mkostemp(path.data(), O_CLOEXEC));
  ASSERT_EQ(::write(writer.get(), "#!/bin/sh\nexit 0\n", 17), 17);
  ASSERT_EQ(::fchmod(writer.get(), 0755), 0);
  std::thread closer([&] {
    ::usleep(5'000);
    writer.reset();
  });
  Command command = shell_in("");
  command.argv = {path};
  const auto output = run_captured(*runner_, command);
  closer.join();
  ::unlink(path.c_str());
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_EQ(output.ending->exit_code, 0) << output.err;
}

// A used init is in the groups of its sandbox, and what ran there before is not charged to the next run.
TEST_F(EnclosureTest, groups_stay_with_the_init_that_stays) {
  auto other = make(true, {{ISOGATE_LIMIT_MEMORY_BYTES, 96u << 20}, {ISOGATE_LIMIT_PIDS, 40}});
  if (!other) GTEST_SKIP() << runner_->abilities().missing;
  const Site own = std::exchange(*site_, *other);
  settle();
  const std::string before = namespaces();
  EXPECT_EQ(namespaces(), before);
  const auto groups = [&] { return run_captured(*runner_, shell_in("cat /proc/self/cgroup")).out; };
  EXPECT_EQ(groups(), groups());
  EXPECT_TRUE(runner_->run(shell_in("head -c 400M /dev/zero | tail -c 400M | wc -c"))->oom_killed);
  for (int i = 0; i < 3; ++i) {
    const auto ending = runner_->run(shell_in("exit 4"));
    ASSERT_TRUE(ending.ok()) << ending.error().message;
    EXPECT_FALSE(ending->oom_killed);
    EXPECT_EQ(ending->exit_code, 4);
  }
  EXPECT_NE(namespaces(), before);
  EXPECT_NE(runner_->run(shell_in("for i in $(seq 60); do sleep 1 & done; wait"))->exit_code, 0)
      << "the limit on processes holds";
  *site_ = own;
  const auto released = runner_->release(*other);
  EXPECT_TRUE(released.ok()) << released.error().message;
}

TEST_F(EnclosureTest, limits_of_all_runs_and_of_one) {
  auto other = make(true, {{ISOGATE_LIMIT_MEMORY_BYTES, 96u << 20}, {ISOGATE_LIMIT_PIDS, 40}});
  if (!other) GTEST_SKIP() << runner_->abilities().missing;
  Command command = shell_in("head -c 400M /dev/zero | tail -c 400M | wc -c");
  command.site = *other;
  auto ending = runner_->run(command);
  ASSERT_TRUE(ending.ok()) << ending.error().message;
  EXPECT_TRUE(ending->oom_killed);
  command.argv = shell("head -c 1M /dev/zero | tail -c 1M | wc -c", "").argv;
  ending = runner_->run(command);
  EXPECT_FALSE(ending->oom_killed) << "it counts the previous run";
  EXPECT_EQ(ending->exit_code, 0);
  // tail needs twice as much if its pipe returns little at a time: still less than the limit of all runs.
  command.argv = shell("head -c 30M /dev/zero | tail -c 30M | wc -c", "").argv;
  command.limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 16u << 20);
  EXPECT_TRUE(runner_->run(command)->oom_killed) << "its own limit is lower";
  command.limits = {};
  EXPECT_FALSE(runner_->run(command)->oom_killed);
  EXPECT_TRUE(runner_->release(*other).ok());
}

TEST_F(EnclosureTest, evidence_is_taken_inside) {
  const auto evidence = runner_->measure(*site_, {true, kUid, kUid}, {});
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
  const auto own = runner_->measure(Site::host(), {}, {});
  ASSERT_TRUE(own.ok());
  EXPECT_NE(evidence->ns_pid, own->ns_pid);
  EXPECT_NE(evidence->ns_mnt, own->ns_mnt);
  EXPECT_NE(evidence->ns_net, own->ns_net);
  EXPECT_NE(evidence->ns_ipc, own->ns_ipc);
  EXPECT_NE(evidence->ns_uts, own->ns_uts);
}

// A listener in the enclosure's own network plays a listener of the gateway that can be reached.
TEST_F(EnclosureTest, evidence_tries_every_listener) {
  Fd listener;
  uint16_t port = 0;
  const auto other = make(true, {}, [&](EnclosureOptions& options, EnclosureProfile&) {
    const auto made = run_apart([&]() -> Result<void> {
      if (::setns(options.network.get(), CLONE_NEWNET) != 0) return os_error("setns", errno);
      listener = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      ifreq up = {{.ifrn_name = "lo"}, {}};
      up.ifr_flags = IFF_UP;
      sockaddr_in any = {AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
      socklen_t size = sizeof any;
      if (::ioctl(listener.get(), SIOCSIFFLAGS, &up) != 0 ||
          ::bind(listener.get(), reinterpret_cast<sockaddr*>(&any), size) != 0 ||
          ::listen(listener.get(), 8) != 0 ||
          ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&any), &size) != 0)
        return os_error("listen", errno);
      port = ntohs(any.sin_port);
      return {};
    });
    EXPECT_TRUE(made.ok()) << made.error().message;
  });
  ASSERT_TRUE(other.has_value());
  const auto flags = [&](const std::string& listeners) {
    isogate_evidence_request request{};
    const std::string address = "127.0.0.1";
    request.gateway_port = 1;
    request.gateway_address = {address.data(), address.size()};
    request.gateway_listeners = {listeners.data(), listeners.size()};
    const auto found = runner_->measure(*other, {true, kUid, kUid}, request);
    EXPECT_TRUE(found.ok()) << found.error().message;
    return found->flags & ~ISOGATE_EVIDENCE_MEASURED;
  };
  const std::string reached = "127.0.0.1:" + std::to_string(port);
  constexpr uint32_t kAll = ISOGATE_EVIDENCE_NETWORK, kOne = ISOGATE_EVIDENCE_REACHED_GATEWAY;
  EXPECT_EQ(flags("127.0.0.1:1"), kAll);
  EXPECT_EQ(flags("127.0.0.1:1 " + reached), kAll | kOne);
  EXPECT_EQ(flags(reached + " [::1]:2"), kAll | kOne);
  EXPECT_EQ(flags("0.0.0.0:" + std::to_string(port)), kAll | kOne) << "a wildcard listens on the loopback";
  EXPECT_EQ(flags("[::]:" + std::to_string(port)), kAll | kOne);
  EXPECT_EQ(flags("192.0.2.1:" + std::to_string(port)), kAll | kOne) << "the loopback is tried, too";
  EXPECT_EQ(flags("127.0.0.1:1 nonsense"), 0u) << "an invalid address counts as untried";
  EXPECT_EQ(flags("127.0.0.1:0"), 0u);
  std::string many;
  for (int i = 2; i < 100; ++i) many += "127.0.0.1:" + std::to_string(i) + " ";
  EXPECT_EQ(flags(many), 0u) << "more than it tries";
  EXPECT_TRUE(runner_->release(*other).ok());
}

TEST_F(EnclosureTest, an_address_without_a_socket_is_untried) {
  const auto other = make(true, {}, [](EnclosureOptions&, EnclosureProfile& profile) {
    profile.filter = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  });
  ASSERT_TRUE(other.has_value());
  const auto found = runner_->measure(*other, {true, kUid, kUid}, {});
  ASSERT_TRUE(found.ok()) << found.error().message;
  EXPECT_EQ(found->flags, ISOGATE_EVIDENCE_MEASURED);
  EXPECT_TRUE(runner_->release(*other).ok());
}

TEST_F(EnclosureTest, every_run_shows_its_isolation) {
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(runner_->run(shell_in("true"))->isolation, ISOGATE_ISOLATION_NAMESPACE);
  Command absent = shell_in("");
  absent.argv = {"/no/such"};
  EXPECT_EQ(runner_->run(absent)->isolation, ISOGATE_ISOLATION_NAMESPACE);
  EXPECT_EQ(runner_->run(shell("true"))->isolation, ISOGATE_ISOLATION_NONE);
}

// An init does not find what it must find: no program is started, neither on demand nor in advance.
TEST_F(EnclosureTest, an_init_that_is_elsewhere_runs_nothing) {
  const std::pair<const char*, Change> cases[] = {
      {"this host's network namespace",
       [](EnclosureOptions& options, EnclosureProfile&) {
         options.network = Fd(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
       }},
      {"a root directory",
       [](EnclosureOptions& options, EnclosureProfile&) { options.root = *mark_of(AT_FDCWD, "/proc"); }},
      {"a workspace",
       [](EnclosureOptions& options, EnclosureProfile&) { options.workspace = *mark_of(AT_FDCWD, "/"); }},
      {"unknown mount namespace",
       [](EnclosureOptions&, EnclosureProfile& profile) {  // the init cannot look
         profile.filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
       }},
      {"init has ended",
       [](EnclosureOptions&, EnclosureProfile& profile) {  // the init cannot report
         profile.filter = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
                           BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendto, 0, 1),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                           BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
       }},
  };
  for (const auto& [what, change] : cases) {
    const auto wrong = make(true, {}, change);
    ASSERT_TRUE(wrong.has_value());
    for (int i = 0; i < 2; ++i) {
      Command command = shell_in("echo ran");
      command.site = *wrong;
      const auto output = run_captured(*runner_, command);
      EXPECT_FALSE(output.ending.ok()) << what;
      EXPECT_NE(output.ending.error().message.find(what), std::string::npos)
          << what << ": " << output.ending.error().message;
      EXPECT_EQ(output.out, "") << what;
    }
    EXPECT_FALSE(runner_->measure(*wrong, {true, kUid, kUid}, {}).ok()) << what;
    EXPECT_TRUE(runner_->release(*wrong).ok()) << what;
  }
}

TEST_F(EnclosureTest, nothing_begins_in_one_that_is_closed) {
  ASSERT_TRUE(runner_->release(*site_).ok());
  const auto output = run_captured(*runner_, shell_in("echo ran; readlink /proc/self/ns/net"));
  ASSERT_FALSE(output.ending.ok());
  EXPECT_EQ(output.ending.error().status, ISOGATE_NO_SANDBOX);
  EXPECT_EQ(output.out, "");
  const auto evidence = runner_->measure(*site_, {true, kUid, kUid}, {});
  ASSERT_FALSE(evidence.ok());
  EXPECT_EQ(evidence.error().status, ISOGATE_NO_SANDBOX);
}

// A zombie whose parent is outside keeps the init of its pid namespace from ending, as a stuck disk would.
TEST_F(EnclosureTest, what_is_held_back_by_the_kernel_is_reported) {
  pid_t held = -1, its_init = -1;
  const std::string mark = new_mark();
  std::thread intruder([&] {
    // Its program runs: before the start a cancelled run is refused.
    ASSERT_TRUE(soon([&] { return (its_init = init_of(mark)) > 0; }));
    const Fd init(static_cast<int>(::syscall(SYS_pidfd_open, its_init, 0)));
    const auto entered = run_apart([&]() -> Result<void> {
      if (::setns(init.get(), CLONE_NEWPID) != 0) return os_error("setns", errno);
      // A child of this process, not of the separate one.
      held = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, 0));
      if (held == 0) {
        for (;;) ::syscall(SYS_pause);
      }
      return held < 0 ? os_error("clone", errno) : Result<void>();
    });
    EXPECT_TRUE(entered.ok()) << entered.error().message;
  });
  auto cancel = make_event();
  Command command = shell_in("sleep 100", mark);
  command.cancel_fd = cancel->get();
  std::thread canceller([&] {
    intruder.join();
    signal_event(cancel->get());
  });
  const auto ending = runner_->run(command);
  canceller.join();
  ASSERT_GT(held, 0);
  ASSERT_TRUE(ending.ok()) << ending.error().message;
  EXPECT_TRUE(ending->killed);
  EXPECT_TRUE(ending->left_behind);
  const auto refused = runner_->release(*site_);
  ASSERT_FALSE(refused.ok()) << "something still runs in it";
  EXPECT_EQ(refused.error().status, ISOGATE_UNAVAILABLE);
  EXPECT_NE(refused.error().message.find("still runs"), std::string::npos) << refused.error().message;
  ASSERT_EQ(::waitpid(held, nullptr, __WALL), held);
  EXPECT_TRUE(soon([&] { return runner_->release(*site_).ok(); }));
}

TEST(InitProof, each_part_is_compared) {
  EnclosureMarks marks;
  InitProof right = {};
  for (int i = 0; i < 7; ++i) {
    marks.host[i] = 100u + static_cast<unsigned>(i);
    right.namespaces[i] = 200u + static_cast<unsigned>(i);
  }
  marks.mounts = 300;
  marks.network = right.namespaces[2];
  marks.user = right.namespaces[5];
  marks.root = right.root = {1, 2};
  marks.workspace = right.workspace = {1, 3};
  right.uid = right.gid = 7;
  right.no_new_privs = 1;
  right.seccomp_mode = 2;
  EXPECT_TRUE(check_proof(right, marks, 7, 7).ok());
  std::vector<InitProof> wrong;
  const auto but = [&](const auto& change) { change(wrong.emplace_back(right)); };
  for (int i = 0; i < 7; ++i) {
    but([i](InitProof& proof) { proof.namespaces[i] = 0; });
    but([&](InitProof& proof) { proof.namespaces[i] = marks.host[i]; });
  }
  but([](InitProof& proof) { proof.namespaces[0] = 300; });
  but([](InitProof& proof) { proof.namespaces[2] = 999; });
  but([](InitProof& proof) { proof.namespaces[5] = 999; });
  but([](InitProof& proof) { proof.root.inode = 9; });
  but([](InitProof& proof) { proof.workspace = {}; });
  but([](InitProof& proof) { proof.capabilities = 1; });
  but([](InitProof& proof) { proof.no_new_privs = 0; });
  but([](InitProof& proof) { proof.seccomp_mode = 0; });
  but([](InitProof& proof) { proof.uid = 0; });
  but([](InitProof& proof) { proof.gid = 0; });
  but([](InitProof& proof) { proof = {}; });
  for (size_t i = 0; i < wrong.size(); ++i) EXPECT_FALSE(check_proof(wrong[i], marks, 7, 7).ok()) << i;
  marks.user = marks.host[5] = right.namespaces[5];  // root creates no user namespace
  EXPECT_TRUE(check_proof(right, marks, 7, 7).ok());
}

}  // namespace
}  // namespace isogate::test
