#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "tests/eventually.h"
#include "tests/local/plugin.h"

// The plugin only through the ABI: terminals, control records, cancelling, and many at once.
namespace isogate::test {
namespace {

using namespace std::chrono_literals;

void send_control(int fd, uint32_t type, uint32_t a, uint32_t b = 0) {
  const isogate_control record{type, a, b, 0};
  ASSERT_EQ(::write(fd, &record, sizeof record), static_cast<ssize_t>(sizeof record));
}

size_t children() {
  std::ifstream list("/proc/self/task/" + std::to_string(::getpid()) + "/children");
  size_t count = 0;
  for (pid_t pid = 0; list >> pid;) ++count;
  return count;
}

class NamespaceExec : public Local {
 protected:
  NamespaceExec() : backend_(state_, "namespace"), box_(backend_) {}
  void SetUp() override {
    if (!is_root_user()) GTEST_SKIP() << "without root this plugin is driven by the contract's cases";
    if (box_.error.find("chroot") != std::string::npos) GTEST_SKIP() << box_.error;
    ASSERT_NE(box_.it, nullptr) << box_.error;
  }
  Backend backend_;
  Box box_;
};

TEST_F(NamespaceExec, ATerminalHasItsSizeAndIsResized) {
  Exec exec;
  exec.argv = {
      "/bin/bash", "-c",
      "test -t 0 && test -t 1 && test -t 2 && stty size; "
      "for i in {1..1000}; do [ \"$(stty size)\" = '50 120' ] && break; sleep 0.02; done; stty size"};
  exec.pty = true;
  exec.rows = 33;
  exec.cols = 99;
  exec.beside = [](Fd&, int control, int, const std::function<std::string()>& output) {
    EXPECT_TRUE(eventually(30, [&] { return output().find("33 99") != std::string::npos; })) << output();
    send_control(control, ISOGATE_CONTROL_RESIZE, 50, 120);
    EXPECT_TRUE(eventually(30, [&] { return output().find("50 120") != std::string::npos; })) << output();
  };
  const Ran ran = box_.run(exec);
  ASSERT_EQ(ran.status, ISOGATE_OK) << ran.error;
  EXPECT_EQ(ran.result.exit_code, 0) << ran.out;
}

TEST_F(NamespaceExec, SignalsGoToTheProgramsGroup) {
  Exec exec;
  exec.argv = {"/bin/bash", "-c", "trap 'echo got; exit 9' USR1; echo ready; while :; do sleep 0.05; done"};
  exec.beside = [](Fd&, int control, int, const std::function<std::string()>& output) {
    EXPECT_TRUE(eventually(30, [&] { return output().find("ready") != std::string::npos; }));
    send_control(control, 99, 1);  // unknown: skipped
    send_control(control, ISOGATE_CONTROL_SIGNAL, SIGUSR1);
    EXPECT_TRUE(eventually(30, [&] { return output().find("got") != std::string::npos; }));
  };
  EXPECT_EQ(box_.run(exec).result.exit_code, 9);
}

TEST_F(NamespaceExec, CancellingKillsAndSaysSo) {
  Exec exec;
  exec.argv = {"/bin/bash", "-c", "trap '' TERM INT; setsid sleep 1000 & echo ready; sleep 1000"};
  exec.beside = [](Fd&, int, int cancel, const std::function<std::string()>& output) {
    EXPECT_TRUE(eventually(30, [&] { return output().find("ready") != std::string::npos; }));
    signal_event(cancel);
  };
  const auto start = std::chrono::steady_clock::now();
  const Ran ran = box_.run(exec);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 60s) << "it did not end by itself";
  EXPECT_EQ(ran.status, ISOGATE_OK) << ran.error;
  EXPECT_NE(ran.result.flags & ISOGATE_RESULT_KILLED, 0u);
  EXPECT_EQ(ran.result.term_signal, SIGKILL);
}

// More than fits into a socket's buffer, and more than the kernel accepts at all.
TEST_F(NamespaceExec, LongArgumentsArriveWhole) {
  Exec exec;
  exec.argv = {"/bin/bash", "-c", "n=0; for a; do n=$((n+${#a})); done; echo $n", "sh"};
  for (int i = 0; i < 12; ++i) exec.argv.emplace_back(100'000, 'x');
  EXPECT_EQ(box_.run(exec).out, "1200000\n");
  for (int i = 0; i < 30; ++i) exec.argv.emplace_back(100'000, 'x');
  EXPECT_EQ(box_.run(exec).status, ISOGATE_INVALID_ARGUMENT);
}

TEST_F(NamespaceExec, ManyAtOnceMixNothingUp) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 25; ++i) {
        const std::string text = std::to_string(t) + "-" + std::to_string(i);
        const Ran ran = box_.sh("echo " + text + "; exit " + std::to_string(i));
        if (ran.out != text + "\n" || ran.result.exit_code != i || ran.status != ISOGATE_OK) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(eventually(30, [] { return children() <= 2; })) << children() << " processes are left";
}

TEST_F(NamespaceExec, ClosingLeavesNoProcess) {
  ASSERT_EQ(box_.close(ISOGATE_CLOSE_PURGE), ISOGATE_OK)
      << box_.error << ": an init made in advance starts and ends";
  const size_t before = children();
  {
    Box other(backend_, 2, "other");
    EXPECT_EQ(other.sh("sleep 100 & echo x").out, "x\n");
    EXPECT_EQ(other.close(ISOGATE_CLOSE_STOP), ISOGATE_OK) << other.error;
    EXPECT_LE(children(), before);
    ASSERT_TRUE(other.open(other.spec(ISOGATE_OPEN_KNOWN))) << other.error;
    EXPECT_EQ(other.sh("echo again").out, "again\n");
  }
  EXPECT_LE(children(), before);
}

}  // namespace
}  // namespace isogate::test
