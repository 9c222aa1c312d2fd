// The duties of a container's first process, and what a tenant may do to its own reapers.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <regex>
#include <thread>

#include "tests/agent/peer.h"
#include "tests/eventually.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

// Kills the reaper of the program, which is its parent, and leaves everything else alive.
const char* const kKillReaper =
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

enum class Kind { plain, first, container };

class FirstProcess : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    start_.first_process = GetParam() == Kind::first;
    start_.hidden = GetParam() == Kind::container;
    if (const std::string why = obstacle(start_); !why.empty()) GTEST_SKIP() << why;
  }
  Start start_;
};

TEST_P(FirstProcess, SaysWhatItIs) {
  AgentProcess agent(start_);
  Peer peer = agent.accept_silently();
  const auto hello = peer.hello();
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ((hello->flags & ISOGATE_RUNNER_IS_INIT) != 0, GetParam() != Kind::plain);
  EXPECT_EQ(hello->pid == 1, GetParam() != Kind::plain);
  EXPECT_EQ((hello->flags & ISOGATE_RUNNER_HAS_PTY) != 0, GetParam() != Kind::container);
  EXPECT_NE(hello->flags & ISOGATE_RUNNER_HAS_DESCRIPTORS, 0u);
  EXPECT_STREQ(hello->build, ISOGATE_VERSION);
}

TEST_P(FirstProcess, EndsWhatAKilledReaperLeaves) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string mark = new_mark();
  // run() skips what comes of others: this one ends after them.
  const uint32_t other = peer.exec(shell("until [ -e go ]; do sleep 0.05; done; echo undisturbed; exit 4"));
  const Outcome lost = peer.run(with_mark(kKillReaper, mark));
  EXPECT_EQ(lost.result.status, ISOGATE_LOST) << lost.message;
  EXPECT_TRUE(gone_within(0.2, mark));
  EXPECT_EQ(peer.run("echo next").out, "next\n");
  std::ofstream(agent.path("go")) << "";
  const Outcome undisturbed = peer.finish(other);
  EXPECT_EQ(undisturbed.out, "undisturbed\n");
  EXPECT_EQ(undisturbed.result.exit_code, 4);
  EXPECT_TRUE(eventually(1, [&] { return children_in(agent.pid()).empty(); }));
}

TEST_P(FirstProcess, KeepsNoZombies) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(peer.run("(setsid sh -c 'true & exit' &); true & kill -9 $PPID; sleep 5").result.status,
              ISOGATE_LOST);
  }
  EXPECT_TRUE(eventually(1, [&] { return zombies_of(agent.pid()) == 0; }));
  EXPECT_TRUE(eventually(1, [&] { return children_in(agent.pid()).empty(); }));
}

TEST_P(FirstProcess, LetsAStoppedReaperGoOn) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string mark = new_mark();
  const uint32_t stream = peer.exec(shell("kill -STOP $PPID; sleep " + mark));
  ASSERT_TRUE(there_within(5, mark));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  peer.cancel(stream);
  const Outcome outcome = peer.finish(stream, 6);
  EXPECT_TRUE(outcome.arrived);
  EXPECT_TRUE(gone_within(0.2, mark));
}

TEST_P(FirstProcess, OutlivesAnAttackOnAReaperThatGoesOn) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
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
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string mark = new_mark();
  peer.exec(shell("setsid sleep " + mark + " & sleep " + mark));
  ASSERT_TRUE(there_within(5, mark, 2));
  peer = Peer();
  Peer again = agent.accept();
  EXPECT_TRUE(gone_within(0.3, mark));
  EXPECT_EQ(again.run("echo again").out, "again\n");
}

TEST_P(FirstProcess, EndsOnSigtermFromOutside) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string mark = new_mark();
  peer.exec(shell("trap '' TERM; sleep " + mark));
  ASSERT_TRUE(there_within(5, mark));
  agent.signal(SIGTERM);
  ASSERT_TRUE(agent.ended(5));
  EXPECT_EQ(WEXITSTATUS(agent.exit_status()), 0);
  EXPECT_TRUE(gone_within(0.5, mark));
}

TEST_P(FirstProcess, RunsAndWritesAndReads) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  EXPECT_EQ(peer.run("echo to stdout").out, "to stdout\n");
  FileSpec spec;
  spec.path = "file";
  EXPECT_EQ(peer.write(spec, "bytes").result.status, ISOGATE_OK);
  spec.verb = ISOGATE_RUNNER_READ;
  EXPECT_EQ(peer.run(spec).out, "bytes");
  const Outcome measured = peer.finish(peer.evidence("", 0));
  EXPECT_EQ(measured.result.status, ISOGATE_OK) << measured.message;
  EXPECT_EQ(measured.result.no_new_privs, 1u);
  ExecSpec terminal = shell("test -t 0");
  terminal.flags = ISOGATE_RUNNER_EXEC_PTY | ISOGATE_RUNNER_EXEC_STDOUT;
  EXPECT_EQ(peer.finish(peer.exec(terminal)).result.status,
            GetParam() == Kind::container ? ISOGATE_UNSUPPORTED : ISOGATE_OK);
  const std::string mark = new_mark();
  const uint32_t stream = peer.exec(shell("setsid sleep " + mark + " & sleep " + mark));
  ASSERT_TRUE(there_within(5, mark, 2));
  peer.cancel(stream);
  EXPECT_TRUE(peer.finish(stream).arrived);
  EXPECT_TRUE(gone_within(0.1, mark));
}

TEST_P(FirstProcess, ProvesThatProgramsRun) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const Outcome proven = peer.finish(peer.prove());
  EXPECT_EQ(proven.result.status, ISOGATE_OK) << proven.message;
  if (!limit_files(agent.pid(), 0)) GTEST_SKIP() << "another user's limits need CAP_SYS_RESOURCE";
  EXPECT_NE(peer.finish(peer.prove()).result.status, ISOGATE_OK);
}

// Every way in which a program could starve or restrict the processes that must end it.
TEST_P(FirstProcess, IsNotChangedByItsPrograms) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string script =
      "import ctypes, os, resource\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "def call(*all):\n"
      "  if libc.syscall(*all) < 0: raise OSError(ctypes.get_errno(), '')\n"
      "def changed(name, change):\n"
      "  try: change()\n"
      "  except OSError as error:\n"
      "    if error.errno in (1, 3, 13, 38): return\n"
      "  print(name)\n"
      "attributes = (ctypes.c_uint32 * 12)(48, 5)\n"
      "for pid in {PIDS}:\n"
      "  changed('policy', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))\n"
      "  changed('param', lambda: os.sched_setparam(pid, os.sched_param(0)))\n"
      "  changed('attributes', lambda: call(314, pid, attributes, 0))\n"
      "  changed('affinity', lambda: os.sched_setaffinity(pid, {0}))\n"
      "  changed('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n"
      "  changed('group', lambda: os.setpriority(os.PRIO_PGRP, pid, 19))\n"
      "  changed('io', lambda: call(251, 1, pid, 3 << 13))\n"
      "  changed('files', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))\n"
      "  changed('data', lambda: resource.prlimit(pid, resource.RLIMIT_DATA, (1, 1)))\n"
      "changed('user', lambda: os.setpriority(os.PRIO_USER, 0, 19))\n"
      "changed('io of the user', lambda: call(251, 3, 0, 3 << 13))\n"
      "changed('signal', lambda: os.kill(1, 0))\n"
      "os.setpriority(os.PRIO_PROCESS, 0, 19)\n"
      "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\n"
      "os.sched_setaffinity(0, os.sched_getaffinity(0))\n"
      "print('end')\n";
  // Among other processes of this machine, it tries only its own reaper.
  const std::string pids = GetParam() == Kind::plain ? "os.getppid()" : "1, os.getppid()";
  ExecSpec spec;
  spec.argv = {"/usr/bin/python3", "-c", std::regex_replace(script, std::regex("PIDS"), pids)};
  const Outcome outcome = peer.finish(peer.exec(spec));
  EXPECT_EQ(outcome.out, "end\n") << outcome.err << outcome.message;
}

// A runner that cannot look finds nothing: that does not mean that nothing is there.
TEST_P(FirstProcess, WhatItCannotSeeIsKilledOrReported) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string mark = new_mark();
  const uint32_t stream =
      peer.exec(shell(with_mark("trap '' HUP TERM; setsid sh -c 'sleep MARK & sleep MARK' & "
                                "until [ -e go ]; do sleep 0.05; done; kill -9 $PPID; sleep MARK",
                                mark)));
  ASSERT_TRUE(there_within(5, mark, 3));
  if (!limit_files(agent.pid(), 0)) GTEST_SKIP() << "another user's limits need CAP_SYS_RESOURCE";
  std::ofstream(agent.path("go")) << "";
  const Outcome lost = peer.finish(stream);
  if (GetParam() == Kind::plain) {
    EXPECT_EQ(lost.result.status, ISOGATE_LOST) << lost.message;
    EXPECT_NE(lost.result.exec_flags & ISOGATE_RESULT_LEFT_BEHIND, 0u);
    ASSERT_TRUE(limit_files(agent.pid(), 65536));
  }
  EXPECT_TRUE(gone_within(1, mark));
}

// Programs that spin leave the runner its share: 400 of them on its processor are killed in time.
TEST_P(FirstProcess, IsInTimeAmongSpinningPrograms) {
  AgentProcess agent(start_);
  Peer peer = agent.accept();
  const std::string mark = new_mark();
  ExecSpec spec;
  spec.argv = {"/usr/bin/python3", "-c",
               "import os\nos.sched_setaffinity(0, {0})\n"
               "wait, go = os.pipe()\n"
               "for i in range(400):\n  if os.fork() == 0:\n    os.setsid()\n    os.close(go)\n"
               "    os.read(wait, 1)\n    while True: pass\n"
               "print('up', flush=True)\nos.close(go)\nwhile True: pass\n",
               mark};
  std::chrono::duration<double> took(60);
  for (int tries = 0; tries < 3 && took.count() > 0.25; ++tries) {  // other tests may slow this machine down
    const uint32_t stream = peer.exec(spec);
    ASSERT_NE(peer.output(stream, "up\n", 30), "");
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // they spin
    const auto begin = std::chrono::steady_clock::now();
    peer.cancel(stream);
    ASSERT_TRUE(peer.finish(stream).arrived);
    took = std::min(took, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin));
    EXPECT_TRUE(marked(mark).empty());
  }
  EXPECT_LT(took.count(), 1.0);  // a starved runner takes ten seconds, one on an idle machine 0.25
}

std::string kind_name(const testing::TestParamInfo<Kind>& info) {
  if (info.param == Kind::plain) return "PlainExec";
  return info.param == Kind::first ? "FirstProcess" : "Container";
}
INSTANTIATE_TEST_SUITE_P(As, FirstProcess, testing::Values(Kind::plain, Kind::first, Kind::container),
                         kind_name);

TEST(FirstProcessAlone, EndsAForkBombWhoseReaperIsDead) {
  const Start start{.unprivileged = true, .max_processes = 80};
  if (const std::string why = obstacle(start); !why.empty()) GTEST_SKIP() << why;
  AgentProcess agent(start);
  Peer peer = agent.accept();
  const Outcome lost = peer.run("f() { f | f & }; f 2>/dev/null; sleep 0.5; kill -9 $PPID; sleep 5");
  EXPECT_EQ(lost.result.status, ISOGATE_LOST) << lost.message;
  EXPECT_TRUE(eventually(5, [&] { return children_in(agent.pid()).empty(); }));
  EXPECT_EQ(peer.run("echo next").out, "next\n");
}

TEST(FirstProcessAlone, SurvivesKillingEverything) {
  const Start start{.first_process = true};
  if (const std::string why = obstacle(start); !why.empty()) GTEST_SKIP() << why;
  AgentProcess agent(start);
  Peer peer = agent.accept();
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
  EXPECT_TRUE(eventually(1, [&] { return children_in(agent.pid()).empty(); }));
}

TEST(FirstProcessAlone, IsNotTraceable) {
  const Start start{.unprivileged = true};
  if (const std::string why = obstacle(start); !why.empty()) GTEST_SKIP() << why;
  AgentProcess agent(start);
  Peer peer = agent.accept();
  EXPECT_EQ(peer.run("cat /proc/" + std::to_string(agent.pid()) + "/mem 2>&1 | grep -c -i denied").out,
            "1\n");
}

TEST(Idle, ReapsKillsOrphansAndEnds) {
  if (const std::string why = obstacle({.first_process = true}); !why.empty()) GTEST_SKIP() << why;
  const std::string mark = new_mark();
  const TemporaryDirectory directory;
  const std::string script = directory.file("start", "(setsid sh -c 'sleep 0.2; sleep " + mark +
                                                         " & true' &)\nexec " + runner_binary() + " idle\n");
  Program program({"unshare", "-r", "-p", "-f", "--mount-proc", "--kill-child", "sh", script}, {});
  ASSERT_TRUE(eventually(5, [&] { return !children_in(program.pid()).empty(); }));
  const pid_t first = children_in(program.pid()).front();
  ASSERT_TRUE(eventually(5, [&] { return command_line(first).find("idle") != std::string::npos; }));
  EXPECT_TRUE(eventually(3, [&] { return children_in(first).empty(); }));
  EXPECT_TRUE(gone_within(1, mark));
  ::kill(first, SIGTERM);
  EXPECT_TRUE(program.wait(5));
}

}  // namespace
}  // namespace isogate::test
