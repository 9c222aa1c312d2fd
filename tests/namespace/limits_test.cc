#include <sys/xattr.h>

#include <algorithm>
#include <filesystem>

#include "runner/cgroup/cgroup.h"
#include "tests/namespace/boxes.h"

// Limits of a whole sandbox: enforced over all its execs together, or refused by name.
namespace isogate::test {
namespace {

class Limits : public Boxes {
 protected:
  // Skips where no such controller is available: then the refusal must name it.
  std::unique_ptr<Gateway> limited(const std::string& limits, const std::string& controller) {
    auto own = another("    limits: {" + limits + "}");
    const Answer backends = Caller(*own, "").get("/backends");
    if (backends.text.find("limit_" + controller) != std::string::npos) return own;
    const Answer refusal = Caller(*own, "a").exec("true");
    EXPECT_NE(refusal.status, 200);
    EXPECT_NE(refusal.text.find(controller), std::string::npos) << refusal.text;
    return nullptr;
  }
};

TEST_F(Limits, MemoryIsSharedAndRunningOutIsReported) {
  const auto own = limited("memory_mb: 128", "memory");
  if (!own) GTEST_SKIP() << "no memory controller here; the refusal named it";
  const Caller me(*own, "a");
  ExecStream holder(me, {{"argv",
                          {"/usr/bin/python3", "-c",
                           "import time; x=b'x'*(20<<20); print('up',flush=True); "
                           "time.sleep(4); print('alive')"}},
                         {"timeout_sec", 30}});
  ASSERT_EQ(holder.next()->at("event"), "start");
  ASSERT_EQ(holder.next()->at("data"), "up\n");
  const Json small = me.run("echo fits");
  EXPECT_EQ(small.at("outcome"), "exited");
  const Json big = me.run_argv({"/usr/bin/python3", "-c", "x=b'x'*(300<<20)"}, {{"timeout_sec", 30}});
  EXPECT_EQ(big.at("outcome"), "oom_killed") << big;
  EXPECT_EQ(big.at("exit_code"), 137);
  const Json end = holder.rest().back();
  EXPECT_EQ(end.at("outcome"), "exited") << "another exec of the sandbox was hit: " << end;
  EXPECT_EQ(me.run("head -c 1M /dev/zero | tail -c 1M | wc -c").at("stdout"), "1048576\n");
  EXPECT_EQ(me.run("true").at("outcome"), "exited")
      << "an earlier out-of-memory does not count for this exec";
  // Y has its own.
  EXPECT_EQ(Caller(*own, "b").run_argv({"/usr/bin/python3", "-c", "x=b'x'*(60<<20)"}).at("outcome"),
            "exited");
}

// v1 counts them separately, and only in a group with its own limit for them.
TEST_F(Limits, BuffersOfSocketsCount) {
  const auto own = limited("memory_mb: 64", "memory");
  if (!own) GTEST_SKIP() << "no memory controller here; the refusal named it";
  const Json ended =
      Caller(*own, "a").run_argv(python("import socket\n"
                                        "l=socket.socket(); l.bind(('127.0.0.1',0)); l.listen(200)\n"
                                        "kept=[]; queued=0\n"
                                        "for i in range(100):\n"
                                        "  c=socket.socket(); c.connect(l.getsockname())\n"
                                        "  s,_=l.accept(); kept+=[c,s]; c.setblocking(False)\n"
                                        "  try:\n"
                                        "    while True: queued+=c.send(b'x'*65536)\n"
                                        "  except BlockingIOError: pass\n"
                                        "print(queued>>20)\n"),
                                 {{"timeout_sec", 60}});
  if (ended.at("outcome") == "oom_killed") return;
  EXPECT_LE(std::stoi(ended.at("stdout").get<std::string>()), 96) << ended;
}

TEST_F(Limits, AShellThatOutlivesItsChildIsKilledToo) {
  const auto own = limited("memory_mb: 64", "memory");
  if (!own) GTEST_SKIP() << "no memory controller here; the refusal named it";
  const Json ended = Caller(*own, "a").run("/usr/bin/python3 -c \"x=b'x'*(300<<20)\"; sleep 5; echo survived",
                                           {{"timeout_sec", 30}});
  EXPECT_EQ(ended.at("outcome"), "oom_killed");
  EXPECT_EQ(ended.at("stdout"), "");
}

TEST_F(Limits, ProcessesAreSharedByAllExecs) {
  const auto own = limited("max_pids: 36", "pids");
  if (!own) GTEST_SKIP() << "no pids controller here; the refusal named it";
  const Caller me(*own, "a");
  const std::string mark = new_mark();
  const std::string fill = "for i in $(seq 20); do sleep " + mark + " & done; wait";
  ExecStream first(me, {{"argv", {"sh", "-c", fill}}, {"timeout_sec", 90}});
  ASSERT_TRUE(there_within(30, mark, 20));
  const Json second =
      me.run_argv({"sh", "-c", "for i in $(seq 20); do sleep 20 & done; echo all"}, {{"timeout_sec", 60}});
  EXPECT_EQ(second.at("stdout"), "") << "40 processes came into being under a limit of 36";
  EXPECT_EQ(Caller(*own, "b")
                .run_argv({"sh", "-c", "for i in $(seq 20); do sleep 0.1 & done; echo all"})
                .at("stdout"),
            "all\n");
}

TEST_F(Limits, TheProcessorIsShared) {
  const auto own = limited("cpu_percent: 20", "cpu");
  if (!own) GTEST_SKIP() << "no cpu controller here; the refusal named it";
  const Json spun = Caller(*own, "a").run("while :; do :; done & while :; do :; done", {{"timeout_sec", 2}});
  EXPECT_EQ(spun.at("outcome"), "timed_out");
  EXPECT_LT(spun.at("cpu_ms").get<double>(), 0.45 * spun.at("duration_ms").get<double>());
}

// 480 programs on one processor that try to starve pid 1.
const char* const kStarve =
    "import ctypes, os, resource\n"
    "libc = ctypes.CDLL(None)\n"
    "def attempt(change):\n"
    "  try: change()\n"
    "  except OSError: pass\n"
    "for pid in (1, 0):\n"
    "  attempt(lambda: os.sched_setaffinity(pid, {0}))\n"
    "  attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n"
    "  attempt(lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))\n"
    "  attempt(lambda: libc.syscall(251, 1, pid, 3 << 13))\n"
    "attempt(lambda: os.setpriority(os.PRIO_USER, 0, 19))\n"
    "attempt(lambda: resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0)))\n"
    "wait, go = os.pipe()\n"
    "for i in range(480):\n"
    "  if os.fork() == 0:\n"
    "    os.setsid()\n"
    "    os.close(go)\n"
    "    os.read(wait, 1)\n"
    "    while True: pass\n"
    "print('up', flush=True)\n"
    "os.close(go)\n"
    "while True: pass\n";

TEST_F(Limits, NobodyOutlivesItsExecByStarvingItsReaper) {
  for (const char* percent : {"100", "20"}) {
    const auto own = limited(std::string("cpu_percent: ") + percent + ", max_pids: 1000", "cpu");
    if (!own) GTEST_SKIP() << "no cpu controller here; the refusal named it";
    const Caller me(*own, "a");
    const std::string mark = new_mark();
    double took = 60;
    for (int tries = 0; tries < 3 && took > 4; ++tries) {  // other tests may slow this machine down
      Json ended;
      const double once = seconds_of([&] {
        ended = me.run_argv({"/usr/bin/python3", "-c", kStarve, mark}, {{"timeout_sec", 3}});
      });
      EXPECT_EQ(marked(mark).size(), 0u) << percent;
      EXPECT_EQ(ended.at("outcome"), "timed_out") << ended;
      took = std::min(took, once);
    }
    EXPECT_LT(took, 4) << percent;
    const Json spun = me.run("while :; do :; done", {{"timeout_sec", 1}});
    EXPECT_LT(spun.at("cpu_ms").get<double>(), std::stod(percent) * 13)
        << "the limit is in force again: " << spun;
  }
}

TEST_F(Limits, NobodyOutlivesTheGatewayByStarvingItsReaper) {
  const auto own = limited("cpu_percent: 20, max_pids: 1000", "cpu");
  if (!own) GTEST_SKIP() << "no cpu controller here; the refusal named it";
  const std::string mark = new_mark();
  ExecStream running(Caller(*own, "a"),
                     {{"argv", {"/usr/bin/python3", "-c", kStarve, mark}}, {"timeout_sec", 60}});
  ASSERT_EQ(running.next()->at("event"), "start");
  ASSERT_EQ(running.next()->at("data"), "up\n");
  own->signal(SIGKILL);
  EXPECT_TRUE(gone_within(1, mark)) << marked(mark).size();
  own->wait(10);
}

TEST_F(Limits, AnExecsOwnLimitsHoldWithin) {
  const auto own = limited("memory_mb: 512, cpu_percent: 200, max_pids: 300", "memory");
  if (!own) GTEST_SKIP() << "no memory controller here; the refusal named it";
  const Caller me(*own, "a");
  const Json inner =
      me.run_argv({"/usr/bin/python3", "-c", "x=b'x'*(200<<20)"}, {{"cgroup", {{"memory_mb", 64}}}});
  EXPECT_EQ(inner.at("outcome"), "oom_killed");
  EXPECT_EQ(me.run_argv({"/usr/bin/python3", "-c", "x=b'x'*(200<<20)"}).at("outcome"), "exited");
  EXPECT_EQ(me.run("cut -d: -f3 /proc/self/cgroup | grep -v '^/$' | grep -vE "
                   "'^/e[0-9]+$'")
                .at("stdout"),
            "")
      << "no path of the host";
}

// The same as docker's, from one source: plugins/common/strict_limits.h.
TEST_F(Limits, ASandboxHasThemByDefault) {
  const auto own = limited("", "memory");
  if (!own) GTEST_SKIP() << "no memory controller here; the refusal named it";
  const Caller me(*own, "a");
  EXPECT_EQ(me.run_argv({"/usr/bin/python3", "-c", "x=b'x'*(700<<20)"}, {{"timeout_sec", 30}}).at("outcome"),
            "oom_killed");
  const Json many =
      me.run_argv({"sh", "-c", "for i in $(seq 300); do sleep 20 & done; echo all"}, {{"timeout_sec", 30}});
  EXPECT_EQ(many.at("stdout"), "") << "300 processes came into being under a limit of 256";
  const Json spun = me.run("while :; do :; done & while :; do :; done", {{"timeout_sec", 2}});
  EXPECT_LT(spun.at("cpu_ms").get<double>(), 1.2 * spun.at("duration_ms").get<double>());
  const auto open = another("    config: {memory_mb: 0, cpus: 0, pids: 0}");
  EXPECT_EQ(Caller(*open, "a").run_argv({"/usr/bin/python3", "-c", "x=b'x'*(700<<20)"}).at("outcome"),
            "exited");
  EXPECT_NE(Caller(*open, "").get("/backends").text.find("may take all memory of this host"),
            std::string::npos);
}

// As systemd starts the service: alone in a marked cgroup2 below the root.
TEST_F(Limits, AGatewayAloneInADelegatedCgroupHasThem) {
  const auto above = Cgroups::make("isogate-above", false);
  for (const uint32_t kind : {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS, ISOGATE_LIMIT_PIDS})
    if (!above->in_leaf({{kind, 500}}))
      GTEST_SKIP() << "cgroup2 has not all controllers here: " << above->missing();
  GatewayOptions options;
  options.yaml = "backends: [{name: namespace}]";
  for (const auto& base : above->bases()) {
    if (base->version() != 2) continue;
    const auto group = base->make_group("service");
    ASSERT_TRUE(group.ok()) << group.error().message;
    ASSERT_EQ(::fsetxattr(group->get(), "trusted.delegate", "1", 1, 0), 0);
    options.cgroup = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(group->get()));
  }
  const Gateway own(options);
  EXPECT_EQ(Caller(own, "a").out("echo served"), "served\n");
  EXPECT_TRUE(read_whole("/proc/" + std::to_string(own.pid()) + "/cgroup").ends_with("/service/gateway\n"));
  const auto bases = group_bases_of(host_of(own, "namespace"));
  ASSERT_EQ(bases.size(), 1u);
  EXPECT_TRUE(bases[0].path.starts_with(options.cgroup + "/isogate.")) << bases[0].path;
  const auto of_sandbox = [&] {
    std::string text;
    for (const auto& entry : std::filesystem::directory_iterator(bases[0].path))
      if (entry.path().filename().string().starts_with('s'))
        for (const char* file : {"/memory.max", "/cpu.max", "/pids.max"})
          text += read_whole(entry.path().string() + file);
    return text;
  };
  EXPECT_TRUE(eventually(10, [&] { return of_sandbox() == "536870912\n100000 100000\n256\n"; }))
      << of_sandbox();
}

TEST_F(Limits, ScratchIsBoundedInBytesAndFiles) {
  const Caller me = x();
  for (const char* place : {"/tmp", "/var/tmp", "/dev/shm"}) {
    const Json full = me.run(std::string("head -c 100M /dev/zero > ") + place + "/big");
    EXPECT_NE(full.at("stderr").get<std::string>().find("No space left"), std::string::npos) << place << full;
    me.run(std::string("rm -f ") + place + "/big");
    EXPECT_EQ(me.run_argv({"/usr/bin/python3", "-c",
                           "import sys\nn=0\ntry:\n  while n<70000: open('%s/%d'%(sys.argv[1],n),'w'); n+=1\n"
                           "except OSError as e: print(e.errno, n<65536)",
                           place},
                          {{"timeout_sec", 60}})
                  .at("stdout"),
              "28 True\n")
        << place;
    me.run(std::string("find ") + place + " -mindepth 1 -delete");
  }
  const auto small = another("    config: {tmp_mb: 4}");
  EXPECT_EQ(Caller(*small, "a")
                .run("head -c 3M /dev/zero > /tmp/f && head -c 3M /dev/zero > /tmp/g")
                .at("exit_code"),
            1);
}

TEST_F(Limits, ASandboxThatWasFilledTakesTheNextExec) {
  const auto own = limited("max_pids: 32", "pids");
  if (!own) GTEST_SKIP() << "no pids controller here; the refusal named it";
  const Caller me(*own, "a");
  for (int i = 0; i < 40; ++i) {  // what the last one left is gone when the next begins
    const Answer answer = me.post("/exec", {{"command", "for i in $(seq 27); do sleep 9 & done; echo fits"}});
    ASSERT_EQ(answer.status, 200) << "exec " << i << ": " << answer.text;
    ASSERT_EQ(answer.body.at("stdout"), "fits\n");
  }
}

TEST_F(Limits, AFullSandboxIsReportedAndWorthARetry) {
  const auto own = limited("max_pids: 32", "pids");
  if (!own) GTEST_SKIP() << "no pids controller here; the refusal named it";
  const Caller me(*own, "a");
  const char* fill =
      "import os,time\n"
      "try:\n"
      "  while True:\n"
      "    if os.fork() == 0: time.sleep(60)\n"
      "except OSError: print('full', flush=True)\n"
      "time.sleep(60)\n";
  ExecStream first(me, {{"argv", {"/usr/bin/python3", "-c", fill}}, {"timeout_sec", 30}});
  ASSERT_EQ(first.next()->at("event"), "start");
  ASSERT_EQ(first.next()->at("data"), "full\n");
  Answer refusal = me.exec("true");
  for (int i = 0; i < 5 && refusal.status == 200; ++i) refusal = me.exec("true");
  ASSERT_TRUE(refused(refusal, 429, "rate_limited")) << refusal.text;
  EXPECT_NE(refusal.text.find("the sandbox is full"), std::string::npos) << refusal.text;
  EXPECT_EQ(refusal.body.at("/error/retryable"_json_pointer), true);
}

TEST_F(Limits, DiskThatIsOnlyCountedIsRefusedByName) {
  const auto strict = another("    limits: {disk_mb: 64}");
  const Answer probed = Caller(*strict, "").get("/backends");
  if (probed.text.find("\"sandbox_limit_disk\"") != std::string::npos)
    GTEST_SKIP() << "the file system of the sandboxes has project quotas";
  const Answer refusal = Caller(*strict, "a").exec("true");
  EXPECT_TRUE(refused(refusal, 503, "backend_unavailable"));
  EXPECT_NE(refusal.text.find("it cannot limit disk_mb: remove it or write limits.mode: best_effort"),
            std::string::npos)
      << refusal.text;
  EXPECT_NE(refusal.text.find("workspace_fs: loop"), std::string::npos) << refusal.text;
  EXPECT_EQ(Caller(*strict, "").get("/backends").body.at("/backends/0/eligible"_json_pointer), false);
  const auto lenient = another("    limits: {disk_mb: 64, mode: best_effort}");
  EXPECT_EQ(Caller(*lenient, "a").out("echo served"), "served\n");
}

TEST_F(Limits, NothingIsLeftOfTheGroups) {
  const auto left = [](const std::vector<GroupBase>& bases) {
    std::string paths;
    for (const GroupBase& base : bases) paths += there(base) ? base.path + "\n" : "";
    return paths;
  };
  std::vector<GroupBase> bases;
  {
    const auto own = limited("memory_mb: 64, max_pids: 50", "memory");
    if (!own) GTEST_SKIP() << "no memory controller here; the refusal named it";
    for (int i = 0; i < 3; ++i) {
      const Caller me(*own, "a" + std::to_string(i));
      me.run("sleep 100 &");
      me.run("true", {{"cgroup", {{"memory_mb", 32}}}});
    }
    bases = group_bases_of(host_of(*own, "namespace"));
    own->stop();
  }
  ASSERT_FALSE(bases.empty());
  EXPECT_TRUE(eventually(20, [&] { return left(bases).empty(); })) << left(bases);
  {
    const auto own = limited("memory_mb: 64, max_pids: 50", "memory");
    const std::string mark = new_mark();
    ExecStream running(Caller(*own, "a"),
                       {{"command", "sleep " + mark + " & sleep " + mark}, {"timeout_sec", 60}});
    ASSERT_TRUE(there_within(30, mark, 2));
    bases = group_bases_of(host_of(*own, "namespace"));
    own->signal(SIGKILL);
    EXPECT_TRUE(gone_within(5, mark)) << "a killed gateway's programs still run";
    own->wait(10);
  }
  ASSERT_FALSE(bases.empty());
  EXPECT_TRUE(eventually(20, [&] { return left(bases).empty(); })) << left(bases);
}

}  // namespace
}  // namespace isogate::test
