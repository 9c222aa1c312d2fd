// The duties of a container's first process, and what a tenant may do to its own supervisors.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/resident/peer.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

// Kills the supervisor of the program, which is its parent, and keeps all else alive.
const char* const kKillSupervisor =
    "trap '' HUP TERM; setsid sh -c 'sleep MARK & sleep MARK' & sleep 0.2; kill -9 $PPID; sleep MARK";

std::string with_mark(std::string script, const std::string& mark) {
  for (size_t at = 0; (at = script.find("MARK")) != std::string::npos;) script.replace(at, 4, mark);
  return script;
}

size_t zombies_of(pid_t pid) {
  size_t count = 0;
  for (const pid_t child : children_in(pid)) count += state_of(child) == 'Z' ? 1 : 0;
  return count;
}

template <typename Condition>
bool within(double seconds, const Condition& condition) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return condition();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

class FirstProcess : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    start_.first_process = GetParam();
    if (const std::string why = obstacle(start_); !why.empty()) GTEST_SKIP() << why;
  }
  Start start_;
};

TEST_P(FirstProcess, SaysWhatItIs) {
  Resident resident(start_);
  Peer peer = resident.accept_silently();
  const auto hello = peer.hello();
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ((hello->flags & ISOGATE_RUNNER_IS_INIT) != 0, GetParam());
  EXPECT_EQ(hello->pid == 1, GetParam());
  EXPECT_NE(hello->flags & ISOGATE_RUNNER_HAS_DESCRIPTORS, 0u);
  EXPECT_STREQ(hello->build, ISOGATE_VERSION);
}

TEST_P(FirstProcess, EndsWhatAKilledSupervisorLeaves) {
  Resident resident(start_);
  Peer peer = resident.accept();
  const std::string mark = new_mark();
  const uint32_t other = peer.exec(shell("sleep 1.5; echo undisturbed; exit 4"));
  const Outcome lost = peer.run(with_mark(kKillSupervisor, mark));
  EXPECT_EQ(lost.result.status, ISOGATE_LOST) << lost.message;
  EXPECT_TRUE(gone_within(0.2, mark));
  EXPECT_EQ(peer.run("echo next").out, "next\n");
  const Outcome undisturbed = peer.finish(other);
  EXPECT_EQ(undisturbed.out, "undisturbed\n");
  EXPECT_EQ(undisturbed.result.exit_code, 4);
  EXPECT_TRUE(within(1, [&] { return children_in(resident.pid()).empty(); }));
}

TEST_P(FirstProcess, KeepsNoZombies) {
  Resident resident(start_);
  Peer peer = resident.accept();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(peer.run("(setsid sh -c 'true & exit' &); true & kill -9 $PPID; sleep 5").result.status,
              ISOGATE_LOST);
  }
  EXPECT_TRUE(within(1, [&] { return zombies_of(resident.pid()) == 0; }));
  EXPECT_TRUE(within(1, [&] { return children_in(resident.pid()).empty(); }));
}

TEST_P(FirstProcess, LetsAStoppedSupervisorGoOn) {
  Resident resident(start_);
  Peer peer = resident.accept();
  const std::string mark = new_mark();
  const uint32_t stream = peer.exec(shell("kill -STOP $PPID; sleep " + mark));
  ASSERT_TRUE(there_within(5, mark));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  peer.cancel(stream);
  const Outcome outcome = peer.finish(stream, 6);
  EXPECT_TRUE(outcome.arrived);
  EXPECT_TRUE(gone_within(0.2, mark));
}

TEST_P(FirstProcess, OutlivesAnAttackOnASupervisorThatGoesOn) {
  Resident resident(start_);
  Peer peer = resident.accept();
  const std::string mark = new_mark();
  const uint32_t stream =
      peer.exec(shell("trap '' TERM; while :; do kill -STOP $PPID; done & sleep " + mark));
  ASSERT_TRUE(there_within(5, mark));
  peer.cancel(stream);
  const Outcome outcome = peer.finish(stream, 9);
  EXPECT_TRUE(outcome.arrived);
  EXPECT_TRUE(gone_within(0.5, mark));
  EXPECT_EQ(peer.run("echo next").out, "next\n");
}

TEST_P(FirstProcess, DialsAgainAndEndsWhatRan) {
  Resident resident(start_);
  Peer peer = resident.accept();
  const std::string mark = new_mark();
  peer.exec(shell("setsid sleep " + mark + " & sleep " + mark));
  ASSERT_TRUE(there_within(5, mark, 2));
  peer = Peer();
  Peer again = resident.accept();
  EXPECT_TRUE(gone_within(0.3, mark));
  EXPECT_EQ(again.run("echo again").out, "again\n");
}

TEST_P(FirstProcess, EndsOnSigtermFromOutside) {
  Resident resident(start_);
  Peer peer = resident.accept();
  const std::string mark = new_mark();
  peer.exec(shell("trap '' TERM; sleep " + mark));
  ASSERT_TRUE(there_within(5, mark));
  resident.signal(SIGTERM);
  ASSERT_TRUE(resident.ended(5));
  EXPECT_EQ(WEXITSTATUS(resident.exit_status()), 0);
  EXPECT_TRUE(gone_within(0.5, mark));
}

INSTANTIATE_TEST_SUITE_P(As, FirstProcess, testing::Bool(), [](const auto& parameter) {
  return std::string(parameter.param ? "FirstProcess" : "PlainExec");
});

TEST(FirstProcessAlone, SurvivesKillingEverything) {
  const Start start{.first_process = true};
  if (const std::string why = obstacle(start); !why.empty()) GTEST_SKIP() << why;
  Resident resident(start);
  Peer peer = resident.accept();
  const std::string mark = new_mark();
  const uint32_t other = peer.exec(shell("sleep " + mark));
  ASSERT_TRUE(there_within(5, mark));
  for (const char* script : {"kill -9 1; kill -TERM 1; kill -INT 1; kill -STOP 1; echo alive",
                             "kill -9 -1; sleep 5", "kill -TERM -1; kill -9 -1"}) {
    const Outcome outcome = peer.run(script);
    ASSERT_TRUE(outcome.arrived) << script;
    if (outcome.out == "alive\n") continue;
    EXPECT_EQ(outcome.result.status, ISOGATE_LOST) << script << outcome.message;
  }
  EXPECT_TRUE(gone_within(0.5, mark));
  EXPECT_NE(other, 0u);
  EXPECT_EQ(peer.run("echo next").out, "next\n");
  EXPECT_TRUE(within(1, [&] { return children_in(resident.pid()).empty(); }));
}

TEST(FirstProcessAlone, IsNotTraceable) {
  const Start start{.unprivileged = true};
  if (const std::string why = obstacle(start); !why.empty()) GTEST_SKIP() << why;
  Resident resident(start);
  Peer peer = resident.accept();
  EXPECT_EQ(peer.run("cat /proc/" + std::to_string(resident.pid()) + "/mem 2>&1 | grep -c -i denied").out,
            "1\n");
}

TEST(Idle, ReapsKillsStraysAndEnds) {
  if (const std::string why = obstacle({.first_process = true}); !why.empty()) GTEST_SKIP() << why;
  const std::string mark = new_mark();
  const TemporaryDirectory directory;
  const std::string script = directory.file("start", "(setsid sh -c 'sleep 0.2; sleep " + mark +
                                                         " & true' &)\nexec " + runner_binary() + " idle\n");
  Program program({"unshare", "-r", "-p", "-f", "--mount-proc", "--kill-child", "sh", script}, {});
  ASSERT_TRUE(within(5, [&] { return !children_in(program.pid()).empty(); }));
  const pid_t first = children_in(program.pid()).front();
  ASSERT_TRUE(within(5, [&] { return command_line(first).find("idle") != std::string::npos; }));
  EXPECT_TRUE(within(3, [&] { return children_in(first).empty(); }));
  EXPECT_TRUE(gone_within(1, mark));
  ::kill(first, SIGTERM);
  EXPECT_TRUE(program.wait(5));
}

}  // namespace
}  // namespace isogate::test
