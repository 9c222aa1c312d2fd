#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>

#include <climits>
#include <csignal>
#include <cstring>
#include <regex>

#include "tests/support/api.h"
#include "tests/support/processes.h"

// A front that an attacker controls tries what its filter forbids.
namespace isogate::test {
namespace {

#if defined(__x86_64__)
// Makes a process make another system call in place of its next wait for events. Anywhere else it would
// continue with an unexpected result, and might end because of that.
testing::AssertionResult make_it_call(pid_t pid, long system_call, unsigned long first_argument) {
  if (::ptrace(PTRACE_SEIZE, pid, 0, 0) != 0)
    return testing::AssertionFailure() << "cannot take it over: " << std::strerror(errno);
  user_regs_struct registers{};
  std::string wrong;
  const bool waits = eventually(20, [&] {
    int status = 0;
    if (::ptrace(PTRACE_INTERRUPT, pid, 0, 0) != 0 || ::waitpid(pid, &status, __WALL) != pid ||
        ::ptrace(PTRACE_GETREGS, pid, 0, &registers) != 0) {
      wrong = std::string("it does not stop: ") + std::strerror(errno);
      return true;
    }
    // A wait that already has events would lose them.
    const bool interrupted = static_cast<long long>(registers.rax) < 0;
    if (interrupted && (registers.orig_rax == SYS_epoll_wait || registers.orig_rax == SYS_epoll_pwait))
      return true;
    ::ptrace(PTRACE_CONT, pid, 0, WIFSTOPPED(status) && status >> 16 == 0 ? WSTOPSIG(status) : 0);
    return false;
  });
  if (!wrong.empty()) return testing::AssertionFailure() << wrong;
  if (!waits) return testing::AssertionFailure() << "it does not wait for events";
  registers.rip -= 2;  // the `syscall` instruction that it waits in
  registers.rax = static_cast<unsigned long long>(system_call);
  registers.orig_rax = ~0ull;  // not to be restarted
  registers.rdi = first_argument;
  if (::ptrace(PTRACE_SETREGS, pid, 0, &registers) != 0 || ::ptrace(PTRACE_DETACH, pid, 0, 0) != 0)
    return testing::AssertionFailure() << "cannot let it go: " << std::strerror(errno);
  return testing::AssertionSuccess();
}

// Milliseconds that the supervisor waits before it starts the next front; INT_MAX: not logged.
int backoff_after(const std::string& log, const std::string& system_call) {
  const std::regex line(
      "front_crashed\",\"reason\":\"signal 31 \\(SIGSYS\\), for the forbidden system call `" + system_call +
      "`\",\"restart_in_ms\":([0-9]+)");
  std::smatch found;
  return std::regex_search(log, found, line) ? std::stoi(found[1]) : INT_MAX;
}

struct Forbidden {
  long number;
  unsigned long first_argument;
  const char* name;
};

TEST(Violation, KillsTheFrontIsNamedInTheLogAndTheFrontComesBack) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer delivers SIGSYS late";
#endif
  if (!root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  Gateway gateway("allow_unisolated: true\nbackends: [{name: local}]\n");
  for (const Forbidden& call :
       {Forbidden{SYS_process_vm_readv, 1, "process_vm_readv"}, Forbidden{SYS_execve, 0, "execve"},
        Forbidden{SYS_rt_sigaction, SIGSYS, "rt_sigaction"}}) {
    const pid_t front = front_of(gateway);
    ASSERT_GT(front, 0);
    ASSERT_TRUE(make_it_call(front, call.number, call.first_argument)) << call.name;
    EXPECT_TRUE(eventually(20, [&] { return !alive(front); })) << call.name;
    const std::string line =
        "\"event\":\"front_forbidden_system_call\",\"system_call\":\"" + std::string(call.name) + "\"";
    EXPECT_TRUE(gateway.logs(line, 20)) << gateway.log();
    EXPECT_TRUE(eventually(20, [&] {
      try {
        return gateway.get("/readyz").status == 200;
      } catch (const std::runtime_error&) {
        return false;
      }
    })) << gateway.log();
    EXPECT_NE(front_of(gateway), front);
    EXPECT_LE(backoff_after(gateway.log(), call.name), 1600);
    EXPECT_EQ(Caller(gateway, "a").out("echo again"), "again\n");
  }
}

// A call that is refused, not deadly, does not end it.
TEST(Violation, WhatLibrariesProbeForIsOnlyRefused) {
  if (!root_gateway_obstacle().empty()) GTEST_SKIP() << root_gateway_obstacle();
  Gateway gateway("allow_unisolated: true\nbackends: [{name: local}]\n");
  const pid_t front = front_of(gateway);
  ASSERT_TRUE(make_it_call(front, SYS_unshare, 0x10000000));
  EXPECT_EQ(Caller(gateway, "a").out("echo still"), "still\n");
  EXPECT_EQ(front_of(gateway), front);
}
#endif

}  // namespace
}  // namespace isogate::test
