#include "gateway/base/front_filter.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "gateway/base/privileges.h"
#include "tests/privileges/child.h"

namespace isogate::test {
namespace {

// Both as root and as an ordinary user: the filter must suffice.
ChildEnd filtered(const std::function<std::string()>& body) {
  return in_child([&]() -> std::string {
    if (auto result = install_front_filter(); !result) return result.error().message;
    return body();
  });
}

std::string tried(long result) { return result >= 0 ? "worked" : std::strerror(errno); }
const std::string kEperm = std::strerror(EPERM);

TEST(FrontFilter, is_in_force) {
  EXPECT_EQ(filtered([] { return status_line("Seccomp") + status_line("NoNewPrivs"); }).said, "21");
}

TEST(FrontFilter, also_as_an_ordinary_user) {
  auto end = in_ordinary_child([] {
    if (auto result = install_front_filter(); !result) return result.error().message;
    return status_line("Seccomp") + status_line("NoNewPrivs");
  });
  EXPECT_EQ(end.said, "21");
}

TEST(FrontFilter, an_exec_kills_the_process) {
  auto end = filtered([] {
    ::execl("/bin/true", "true", nullptr);
    return std::string("still here");
  });
  EXPECT_EQ(end.term_signal, SIGSYS);
  EXPECT_EQ(end.said, "");
}

TEST(FrontFilter, an_exec_by_descriptor_kills_the_process) {
  auto end = filtered([] {
    char* argv[] = {nullptr};
    ::syscall(SYS_execveat, ::open("/bin/true", O_PATH | O_CLOEXEC), "", argv, argv, AT_EMPTY_PATH);
    return std::string("still here");
  });
  EXPECT_EQ(end.term_signal, SIGSYS);
}

TEST(FrontFilter, ptrace_and_foreign_memory_kill_the_process) {
  EXPECT_EQ(filtered([] { return tried(::ptrace(PTRACE_ATTACH, ::getppid(), 0, 0)); }).term_signal, SIGSYS);
  EXPECT_EQ(
      filtered([] { return tried(::syscall(SYS_process_vm_readv, ::getppid(), 0, 0, 0, 0, 0)); }).term_signal,
      SIGSYS);
}

TEST(FrontFilter, no_new_process) {
  EXPECT_EQ(filtered([] { return tried(::fork()); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0)); }).said, kEperm);
#if defined(SYS_vfork)
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_fork)); }).said, kEperm);
#endif
  clone_args args{};
  args.exit_signal = SIGCHLD;
  EXPECT_EQ(filtered([&] { return tried(::syscall(SYS_clone3, &args, sizeof args)); }).said,
            std::strerror(ENOSYS));
  EXPECT_EQ(filtered([] { return std::to_string(WEXITSTATUS(::system("true"))); }).said, "127");
}

TEST(FrontFilter, no_namespace_not_even_for_a_thread) {
  const unsigned long thread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_FS | CLONE_FILES;
  for (unsigned long flag :
       {CLONE_NEWNET, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWCGROUP, CLONE_NEWPID, CLONE_NEWUSER, CLONE_NEWNS})
    EXPECT_EQ(filtered([=] { return tried(::syscall(SYS_clone, thread | flag, 0, 0, 0, 0)); }).said, kEperm)
        << flag;
  EXPECT_EQ(filtered([] { return tried(::unshare(CLONE_NEWUSER)); }).said, kEperm);
  EXPECT_EQ(
      filtered([] { return tried(::setns(::open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC), 0)); }).said,
      kEperm);
}

TEST(FrontFilter, no_mount_no_root_no_keyring_no_bpf) {
  EXPECT_EQ(filtered([] { return tried(::mount("none", "/tmp", "tmpfs", 0, "")); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::umount2("/nowhere", 0)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::chroot("/")); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_open_tree, AT_FDCWD, "/", 0)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(467, AT_FDCWD, "/", 0, nullptr, 0)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_bpf, 0, nullptr, 0)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_keyctl, 0, -3, 0)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_add_key, "user", "x", "y", 1, -3)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_io_uring_setup, 1, nullptr)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_userfaultfd, 0)); }).said, kEperm);
  EXPECT_EQ(filtered([] { return tried(::syscall(SYS_pidfd_getfd, 0, 0, 0)); }).said, kEperm);
}

TEST(FrontFilter, only_the_families_of_a_server) {
  for (int family : {AF_UNIX, AF_INET, AF_INET6})
    EXPECT_EQ(filtered([=] { return tried(::socket(family, SOCK_STREAM, 0)); }).said, "worked") << family;
  for (int family : {AF_PACKET, AF_ALG, AF_VSOCK})
    EXPECT_EQ(filtered([=] { return tried(::socket(family, SOCK_STREAM, 0)); }).said,
              std::strerror(EAFNOSUPPORT));
}

TEST(FrontFilter, threads_and_signals_and_memory_still_work) {
  auto end = filtered([] {
    std::atomic<int> sum = 0;
    std::vector<std::thread> threads;
    for (int i = 0; i < 8; ++i) threads.emplace_back([&sum, i] { sum += i; });
    for (std::thread& thread : threads) thread.join();
    return std::to_string(sum);
  });
  EXPECT_EQ(end.said, "28");
}

TEST(FrontFilter, holds_for_threads_that_ran_before) {
  auto end = in_child([]() -> std::string {
    std::atomic<bool> loaded = false;
    std::string said;
    std::thread early([&] {
      while (!loaded) std::this_thread::yield();
      said = tried(::unshare(CLONE_FS));
    });
    auto result = install_front_filter();
    loaded = true;
    early.join();
    return result ? said : result.error().message;
  });
  EXPECT_EQ(end.said, kEperm);
}

#if defined(__x86_64__)
TEST(FrontFilter, a_32_bit_system_call_kills_the_process) {
  auto end = filtered([] {
    long result = 20;  // getpid of i386
    asm volatile("int $0x80" : "+a"(result)::"memory");
    return std::to_string(result);
  });
  EXPECT_EQ(end.term_signal, SIGSYS);
}

TEST(FrontFilter, an_x32_system_call_kills_the_process) {
  EXPECT_EQ(filtered([] { return tried(::syscall(0x40000000 | SYS_getpid)); }).term_signal, SIGSYS);
}
#endif

TEST(FrontFilter, a_deadly_call_is_reported_by_name_before_the_end) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer delivers SIGSYS late";
#endif
  for (const bool in_thread : {false, true}) {
    int pair[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    const auto record = [](const char* name) { return "died of " + std::string(name); };
    auto end = in_child([&]() -> std::string {
      if (auto result = install_front_filter({pair[1], record}); !result) return result.error().message;
      const auto attack = [] { (void)::ptrace(PTRACE_ATTACH, ::getppid(), 0, 0); };
      if (in_thread) {
        std::thread(attack).join();
      } else {
        attack();
      }
      return "still here";
    });
    EXPECT_EQ(end.term_signal, SIGSYS);
    EXPECT_EQ(end.said, "");
    char said[64] = {};
    EXPECT_GT(::recv(pair[0], said, sizeof said - 1, MSG_DONTWAIT), 0);
    EXPECT_STREQ(said, "died of ptrace");
    ::close(pair[0]);
    ::close(pair[1]);
  }
}

// Blocked, ignored or caught by another handler: each would keep the front alive.
TEST(FrontFilter, the_report_cannot_be_switched_off) {
  const auto record = [](const char* name) { return std::string(name); };
  const std::function<void()> tricks[] = {[] { ::signal(SIGSYS, SIG_IGN); },
                                          [] {
                                            sigset_t all;
                                            sigfillset(&all);
                                            ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
                                          }};
  for (const auto& trick : tricks) {
    auto end = in_child([&]() -> std::string {
      if (auto result = install_front_filter({STDERR_FILENO, record}); !result) return result.error().message;
      trick();
      (void)::ptrace(PTRACE_ATTACH, ::getppid(), 0, 0);
      return "still here";
    });
    EXPECT_EQ(end.term_signal, SIGSYS);
  }
}

TEST(FrontFilterTable, is_sorted_and_every_line_has_a_reason) {
  auto rules = front_filter_rules();
  EXPECT_TRUE(std::is_sorted(rules.begin(), rules.end(), [](const FilterRule& a, const FilterRule& b) {
    return std::strcmp(a.system_call, b.system_call) < 0;
  }));
  for (const FilterRule& rule : rules) EXPECT_GT(std::strlen(rule.reason), 5u) << rule.system_call;
}

TEST(FrontFilterTable, an_unknown_name_is_an_error) {
  const FilterRule unknown[] = {{"no_such_call", FilterAction::kRefuse, "a test"}};
  EXPECT_NE(in_child([&] { return told(install_filter(unknown)); }).said.find("`no_such_call`"),
            std::string::npos);
}

}  // namespace
}  // namespace isogate::test
