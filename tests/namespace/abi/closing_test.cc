// What was opened, what was measured, and what does not end when it should: only through the ABI.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "runner/exec/apart.h"
#include "tests/local/plugin.h"

namespace isogate::test {
namespace {

class NamespaceClosing : public Local {
 protected:
  NamespaceClosing() : backend_(state_, "namespace"), box_(backend_) {}
  void SetUp() override {
    if (!is_root_user()) GTEST_SKIP() << "without root this plugin is driven by the contract's cases";
    if (box_.error.find("chroot") != std::string::npos) GTEST_SKIP() << box_.error;
    ASSERT_NE(box_.it, nullptr) << box_.error;
  }
  Backend backend_;
  Box box_;
};

TEST_F(NamespaceClosing, EachOpenIsFreshAndMeasuredBeforeItsFirstProgram) {
  isogate_evidence first, again;
  EXPECT_EQ(box_.info.flags, ISOGATE_SANDBOX_FRESH);
  ASSERT_EQ(box_.evidence(&first), ISOGATE_OK);
  EXPECT_EQ(box_.sh("echo ran").out, "ran\n");
  ASSERT_EQ(box_.evidence(&again), ISOGATE_OK);
  EXPECT_EQ(again.ns_pid, first.ns_pid) << "the earlier measurement, not one that a tenant could influence";
  EXPECT_EQ(again.ns_net, first.ns_net);
  ASSERT_EQ(box_.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << box_.error;
  ASSERT_TRUE(box_.open(box_.spec(ISOGATE_OPEN_KNOWN))) << box_.error;
  EXPECT_EQ(box_.info.flags, ISOGATE_SANDBOX_FRESH | ISOGATE_SANDBOX_ATTACHED);
  ASSERT_EQ(box_.evidence(&again), ISOGATE_OK);
  EXPECT_NE(again.ns_net, first.ns_net) << "it is another enclosure";
  ASSERT_EQ(box_.close(ISOGATE_CLOSE_DETACH), ISOGATE_OK) << box_.error;
  ASSERT_TRUE(box_.open(box_.spec(ISOGATE_OPEN_KNOWN))) << box_.error;
  EXPECT_NE(box_.info.flags & ISOGATE_SANDBOX_FRESH, 0u);
  EXPECT_EQ(box_.sh("echo ran").out, "ran\n");
  EXPECT_NE(box_.evidence(&again), ISOGATE_OK) << "it was not measured in time";
}

TEST_F(NamespaceClosing, WhatIsRefusedNowCanOnlyBeEnded) {
  ASSERT_EQ(box_.write("f", "kept"), ISOGATE_OK);
  ASSERT_EQ(box_.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << box_.error;
  isogate_sandbox_spec spec = box_.spec(ISOGATE_OPEN_ATTACH_ONLY);
  spec.egress = ISOGATE_EGRESS_ALLOW;
  isogate_evidence found;
  for (const uint32_t mode : {ISOGATE_CLOSE_STOP, ISOGATE_CLOSE_PURGE}) {
    ASSERT_TRUE(box_.open(spec)) << box_.error;
    EXPECT_EQ(box_.sh("true").status, ISOGATE_UNSUPPORTED);
    EXPECT_EQ(box_.evidence(&found), ISOGATE_UNSUPPORTED);
    EXPECT_EQ(box_.read("f").first, ISOGATE_UNSUPPORTED);
    EXPECT_EQ(box_.write("f", "new"), ISOGATE_UNSUPPORTED);
    EXPECT_EQ(box_.close(mode), ISOGATE_OK) << box_.error;
  }
  EXPECT_FALSE(box_.open(spec));
  EXPECT_EQ(box_.status, ISOGATE_NO_SANDBOX) << "nothing is left";
}

pid_t an_init() {
  std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  for (pid_t pid = 0; list >> pid;) {
    std::string name;
    std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/cmdline"), name, '\0');
    if (name == "init") return pid;
  }
  return -1;
}

// A child of this process in that init's pid namespace. Killed, and not waited for, it keeps the init from
// ending, as a program in a stuck disk would.
pid_t plant_in(pid_t init) {
  pid_t planted = -1;
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, init, 0)));
  const auto done = run_apart([&]() -> Result<void> {
    if (::setns(process.get(), CLONE_NEWPID) != 0) return os_error("setns", errno);
    planted = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PARENT | SIGCHLD, nullptr, nullptr, nullptr, 0));
    while (planted == 0) ::syscall(SYS_pause);
    return planted < 0 ? os_error("clone", errno) : Result<void>();
  });
  EXPECT_TRUE(done.ok()) << done.error().message;
  return planted;
}

TEST_F(NamespaceClosing, WhatIsLeftBehindIsSaidAndKeepsTheSandboxFromClosing) {
  pid_t planted = -1;
  Exec exec;
  exec.argv = {"/bin/bash", "-c", "echo ready; sleep 1000"};
  exec.beside = [&](Fd&, int, int cancel, const std::function<std::string()>& output) {
    for (int i = 0; i < 6000 && output().empty(); ++i) ::usleep(5000);
    planted = plant_in(an_init());
    signal_event(cancel);
  };
  const Ran ran = box_.run(exec);
  ASSERT_GT(planted, 0);
  ASSERT_EQ(ran.status, ISOGATE_OK) << ran.error;
  EXPECT_NE(ran.result.flags & ISOGATE_RESULT_LEFT_BEHIND, 0u);
  EXPECT_NE(ran.result.flags & ISOGATE_RESULT_KILLED, 0u);

  EXPECT_EQ(box_.close(ISOGATE_CLOSE_STOP), ISOGATE_UNAVAILABLE);
  EXPECT_NE(box_.error.find("still runs"), std::string::npos) << box_.error;
  EXPECT_EQ(box_.sh("echo ran").status, ISOGATE_NO_SANDBOX) << "closed to every call";
  EXPECT_EQ(box_.write("file", "x"), ISOGATE_NO_SANDBOX);
  isogate_sandbox* const unclosed = box_.it;
  EXPECT_FALSE(box_.open(box_.spec(ISOGATE_OPEN_KNOWN))) << "no second enclosure next to the first";
  EXPECT_EQ(box_.status, ISOGATE_UNAVAILABLE);
  box_.it = unclosed;
  EXPECT_EQ(box_.close(ISOGATE_CLOSE_PURGE), ISOGATE_UNAVAILABLE);

  ASSERT_EQ(::waitpid(planted, nullptr, __WALL), planted);
  isogate_status closed = ISOGATE_UNAVAILABLE;
  for (int i = 0; i < 20 && closed != ISOGATE_OK; ++i) closed = box_.close(ISOGATE_CLOSE_STOP);
  ASSERT_EQ(closed, ISOGATE_OK) << box_.error;
  ASSERT_TRUE(box_.open(box_.spec(ISOGATE_OPEN_KNOWN))) << box_.error;
  EXPECT_EQ(box_.sh("echo again").out, "again\n");
}

}  // namespace
}  // namespace isogate::test
