#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>
#include <thread>

#include "runner/cgroup/cgroup_base.h"
#include "tests/attacks/attack.h"
#include "tests/attacks/stuck_files.h"

// Group P.
namespace isogate::test {
namespace {

TEST_F(ProcessAttack, P39_AForkBombEndsAtItsTimeout) {
  const std::string mark = new_mark();
  const std::string bomb = "b() { sleep " + mark + " & b | b & }; b; sleep " + mark;
  if (backend() == "k8s")
    GTEST_SKIP() << "the limit is the kubelet's, and without one this machine would suffer";
  Json bounded{{"timeout_sec", 2}};
  if (!shares_container()) bounded["cgroup"] = {{"max_pids", 200}};  // else the container has its own
  const Answer answer = x().exec(bomb, bounded);
  if (answer.status == 501)
    GTEST_SKIP() << "no limit of processes here, and without one this machine would suffer: " << answer.text;
  if (shares_container() &&
      answer.status == 502) {  // its runner was late, and all of it was killed from outside
    EXPECT_TRUE(refused(answer, 502, "outcome_unknown"));
    EXPECT_TRUE(gone_within(10, mark)) << marked(mark).size() << " survivors";
    return;
  }
  ASSERT_TRUE(succeeded(answer));
  EXPECT_TRUE(answer.body.at("outcome") == "timed_out" || answer.body.at("outcome") == "exited" ||
              answer.body.at("outcome") == "signaled")
      << answer.text;
  EXPECT_TRUE(gone_within(1, mark)) << marked(mark).size() << " survivors 1 s after the end";
}

TEST_F(ProcessAttack, P40_P41_NothingOutlivesItsExec) {
  const std::string mark = new_mark();
  const std::string daemon =
      "import os,time\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nos.chdir('/'); "
      "[os.close(i) for i in range(3)]\nos.execvp('sleep',['sleep','" +
      mark + "'])\n";
  ASSERT_TRUE(succeeded(x().write("daemon.py", daemon)));
  for (const std::string& command :
       {std::string("sleep MARK & echo hi"), std::string("setsid sleep MARK & echo hi"),
        std::string("nohup sleep MARK & disown; echo hi"), std::string("/usr/bin/python3 daemon.py; echo hi"),
        std::string("for i in $(seq 30); do (setsid sh -c 'sleep MARK & sleep MARK' &) ; done; echo hi")}) {
    std::string text = command;
    for (size_t at; (at = text.find("MARK")) != std::string::npos;) text.replace(at, 4, mark);
    double took = seconds_of([&] { EXPECT_EQ(x().run(text).at("stdout"), "hi\n") << command; });
    EXPECT_LT(took, 20) << command;
    EXPECT_TRUE(gone_within(1, mark)) << command;
  }
}

TEST_F(ProcessAttack, P42_AClosedStdoutIsNotTheEnd) {
  const std::string mark = new_mark();
  const Json result = x().run("exec >&- 2>&-; sleep " + mark, {{"timeout_sec", 0.5}});
  EXPECT_EQ(result.at("outcome"), "timed_out");
  EXPECT_TRUE(gone_within(1, mark));
}

TEST_F(ProcessAttack, P43_P44_StoppedDeafAndManyAreKilled) {
  const std::string mark = new_mark();
  const std::string many =
      "trap '' TERM INT HUP QUIT USR1; for i in $(seq 100); do setsid sh -c \"trap '' TERM INT HUP; sleep " +
      mark + " & kill -STOP \\$\\$\" & done; sleep 0.5; kill -STOP $$";
  const Json result = x().run(many, {{"timeout_sec", 4}});
  EXPECT_EQ(result.at("outcome"), "timed_out");
  EXPECT_TRUE(gone_within(3, mark)) << marked(mark).size() << " survivors";
}

// It spawns faster than its processes can be listed, and is still killed.
TEST_F(ProcessAttack, P41_AChainOfForksIsCaught) {
  const std::string mark = new_mark();
  const std::string chain = "import os,sys\nwhile True:\n  if os.fork(): os._exit(0)\n  os.setsid()\n";
  const Json result =
      x().run("/usr/bin/python3 -c '" + chain + "' " + mark + "; sleep " + mark, {{"timeout_sec", 1}});
  EXPECT_EQ(result.at("outcome"), "timed_out");
  EXPECT_TRUE(gone_within(3, mark)) << marked(mark).size() << " survivors";
}

TEST_F(ProcessAttack, P46_AProcessThatNoSignalEndsDelaysNobodyElse) {
  if (!StuckFiles::obstacle().empty()) GTEST_SKIP() << StuckFiles::obstacle();
  if (backend() == "k8s") GTEST_SKIP() << "a pod has no directory of this host";
  StuckFiles files;
  const auto own = another("", "shared_dirs: [{prefix: data, path: " + files.path() + "}]");
  const Caller me(*own, "stuck"), other(*own, "other");
  me.run("true");
  other.run("true");
  const std::string mark = new_mark(), place = isolates() ? "/mnt/data" : files.path();
  Answer ended;
  const double took = seconds_of([&] {
    ended = me.exec("exec cat " + place + "/stuck " + mark, {{"timeout_sec", 6}});
  });
  EXPECT_TRUE(files.is_read());
  EXPECT_TRUE((ended.status == 200 && ended.body.at("outcome") == "timed_out") ||
              refused(ended, 502, "outcome_unknown"))
      << ended.text;
  EXPECT_LT(took, 45);
  const auto left = marked(mark);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(status_field(left[0], "State").substr(0, 1), "D") << "a signal would have ended it";
  EXPECT_EQ(other.run("echo served").at("stdout"), "served\n");
  EXPECT_TRUE(succeeded(other.as("third").exec("true")));
  files.release();
  EXPECT_TRUE(gone_within(20, mark)) << "it was forgotten";
  EXPECT_TRUE(eventually(60, [&] { return me.exec("true").status == 200; }))
      << "its agent stays shut out: " << me.exec("true").text;
}

// The groups of the one sandbox that a backend host limits, and the processor time that they have.
std::set<std::string> cpu_limits_of(pid_t host) {
  std::set<std::string> found;
  for (const GroupBase& base : group_bases_of(host))
    for (const auto& entry : std::filesystem::directory_iterator(base.path))
      for (const char* file : {"/cpu.max", "/cpu.cfs_quota_us"})
        if (entry.path().filename().string().starts_with('s'))
          found.insert(read_whole(entry.path().string() + file));
  found.erase("");
  return found;
}

// Other execs of the sandbox go on meanwhile.
TEST_F(ProcessAttack, P46_AKillThatTakesLongGivesTheSandboxOneMoreProcessor) {
  if (backend() != "namespace") GTEST_SKIP() << "its sandboxes have no cgroup that this host sees";
  if (!StuckFiles::obstacle().empty()) GTEST_SKIP() << StuckFiles::obstacle();
  StuckFiles files;
  const auto own = another("", "shared_dirs: [{prefix: data, path: " + files.path() + "}]");
  const Caller me(*own, "stuck");
  me.run("true");
  const pid_t host = host_of(*own, backend());
  const std::set<std::string> before = cpu_limits_of(host);
  if (before.empty()) GTEST_SKIP() << "no cpu controller here";
  ASSERT_EQ(before.size(), 1u);
  const std::string mark = new_mark();
  std::set<std::string> seen;
  std::atomic<bool> ended = false;
  std::thread watcher([&] {
    for (; !ended; std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      seen.merge(cpu_limits_of(host));
  });
  me.exec("exec cat /mnt/data/stuck " + mark, {{"timeout_sec", 6}});
  ended = true;
  watcher.join();
  EXPECT_TRUE(files.is_read());
  std::string raised = *before.begin();
  ASSERT_TRUE(raised.starts_with("100000")) << raised;
  raised[0] = '2';
  EXPECT_EQ(seen, (std::set<std::string>{*before.begin(), raised}));
  EXPECT_EQ(cpu_limits_of(host), before);
  files.release();
  EXPECT_TRUE(gone_within(20, mark));
}

TEST_F(ProcessAttack, P46_AProcessThatNoSignalEndsSharesNoGroupWithTheNextExec) {
  if (backend() != "namespace") GTEST_SKIP() << "its execs have no groups that this host sees";
  if (!StuckFiles::obstacle().empty()) GTEST_SKIP() << StuckFiles::obstacle();
  StuckFiles files;
  const auto own = another("", "shared_dirs: [{prefix: data, path: " + files.path() + "}]");
  const Caller me(*own, "stuck");
  me.run("true");
  // Where its memory is counted.
  const auto group_of = [](pid_t pid) {
    std::string unified;
    std::istringstream lines(read_whole("/proc/" + std::to_string(pid) + "/cgroup"));
    for (std::string line; std::getline(lines, line);) {
      if (line.find(":memory:") != std::string::npos) return line;
      if (line.starts_with("0::")) unified = line;
    }
    return unified;
  };
  const std::string mark = new_mark(), next = new_mark();
  me.exec("exec cat /mnt/data/stuck " + mark, {{"timeout_sec", 6}});
  const auto left = marked(mark);
  ASSERT_EQ(left.size(), 1u);
  const ExecStream running(me, {{"command", "exec sleep " + next}, {"timeout_sec", 30}});
  EXPECT_TRUE(there_within(10, next));
  for (const pid_t pid : marked(next)) EXPECT_NE(group_of(pid), group_of(left[0]));
  files.release();
  EXPECT_TRUE(gone_within(20, mark));
}

TEST_F(ProcessAttack, P47_KillingEverybodyReachesOneself) {
  if (!separates_agents())
    GTEST_SKIP() << "as an ordinary user, agents and gateway share one uid: " << kNoIsolation;
  ExecStream neighbour(y(), {{"command", "echo up; read x; sleep 3; echo alive"}, {"timeout_sec", 30}});
  ASSERT_EQ(neighbour.next()->at("event"), "start");
  const std::vector<pid_t> before = {gateway().pid(), front_of(gateway()), host_of(gateway(), backend())};
  for (const char* command :
       {"kill -9 -1; sleep 0.2", "kill -9 1; kill -9 $PPID; exit 3", "kill -STOP -1; sleep 0.2"}) {
    const Answer answer = x().exec(command, {{"timeout_sec", 5}});
    EXPECT_TRUE(answer.status == 200 || answer.status == 502) << answer.text;
  }
  const std::string pids =
      std::to_string(before[0]) + " " + std::to_string(before[1]) + " " + std::to_string(before[2]);
  EXPECT_NE(x().run("kill -9 " + pids).at("exit_code"), 0);
  EXPECT_EQ(before, (std::vector<pid_t>{gateway().pid(), front_of(gateway()), host_of(gateway(), backend())}))
      << "a process of the gateway was replaced";
  const auto events = neighbour.rest();
  EXPECT_EQ(data_of(events, "stdout"), "up\nalive\n") << "another agent's program was hit";
  EXPECT_EQ(events.back().at("outcome"), "exited");
}

TEST_F(ProcessAttack, P48_ExitCodesMeanWhatTheySay) {
  EXPECT_EQ(x().run("exit 256").at("exit_code"), 0);
  EXPECT_EQ(x().run("kill -SEGV $$").at("exit_code"), 139);
  EXPECT_EQ(x().run_argv({"/nonexistent"}).at("exit_code"), 127);
  EXPECT_EQ(x().run_argv({"/etc/passwd"}).at("exit_code"), 126);
  const Json told = x().run("exit 124");
  EXPECT_EQ(told.at("outcome"), "exited") << "a program's own 124 is no timeout";
  EXPECT_EQ(x().run("exit 137").at("outcome"), "exited");
}

TEST_F(ProcessAttack, P49_OtherProcessesAreNotTraceable) {
  if (!separates_agents()) GTEST_SKIP() << kNoIsolation;
  const std::string mark = new_mark();
  ExecStream victim(y(), {{"command", "exec sleep " + mark}, {"timeout_sec", 30}});
  ASSERT_TRUE(there_within(5, mark));
  const std::string attach =
      "import ctypes,sys\nlibc=ctypes.CDLL(None,use_errno=True)\nfor p in sys.argv[1:]:\n  "
      "print(libc.ptrace(16,int(p),0,0), ctypes.get_errno() in (1,3))\n";
  std::vector<std::string> argv = {"/usr/bin/python3", "-c", attach, "1"};
  for (const pid_t pid : {gateway().pid(), front_of(gateway()), host_of(gateway(), backend())})
    argv.push_back(std::to_string(pid));
  for (const pid_t pid : marked(mark)) argv.push_back(std::to_string(pid));
  const std::string said = x().run_argv(argv).at("stdout");
  EXPECT_EQ(said.find("0 "), std::string::npos) << said;
  EXPECT_EQ(static_cast<size_t>(std::count(said.begin(), said.end(), '\n')), argv.size() - 3) << said;
  for (const pid_t pid : marked(mark))
    EXPECT_NE(x().run("cat /proc/" + std::to_string(pid) + "/mem").at("exit_code"), 0);
}

TEST_F(ProcessAttack, P50_ExecsOfOneAgentDoNotSeeEachOther) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation << ": there is one pid namespace";
  if (shares_container())
    GTEST_SKIP() << "all execs of an agent are in its one container, where they see and may end each other";
  const std::string mark = new_mark();
  ExecStream first(x(), {{"command", "sleep " + mark}, {"timeout_sec", 30}});
  ASSERT_TRUE(there_within(5, mark));
  const std::string pattern = mark.substr(0, mark.size() - 1) + "[" + mark.back() + "]";  // not this command
  EXPECT_EQ(x().run("grep -l '" + pattern + "' /proc/[0-9]*/cmdline").at("stdout"), "");
  x().run("kill -9 -1; for i in $(seq 2 400); do kill -9 $i; done");
  EXPECT_FALSE(marked(mark).empty()) << "another exec's program was hit";
}

TEST_F(ProcessAttack, P51_AClientThatLeavesFreesEverything) {
  const pid_t front = front_of(gateway()), host = host_of(gateway(), backend());
  x().run("true");
  const size_t of_front = open_files(front).size(), of_host = open_files(host).size();
  const std::string mark = new_mark();
  std::vector<std::unique_ptr<ExecStream>> streams;
  for (int i = 0; i < 20; ++i)
    streams.push_back(std::make_unique<ExecStream>(
        x(), Json{{"command", "setsid -f sleep " + mark + "; yes"}, {"timeout_sec", 60}}));
  for (auto& stream : streams) EXPECT_EQ(stream->next()->at("event"), "start");
  ASSERT_TRUE(there_within(10, mark, 8));
  streams.clear();
  EXPECT_TRUE(gone_within(5, mark));
  // A thread of the host that waits for its next call may keep a descriptor.
  const size_t kept = shares_container() ? 20 : 2;
  EXPECT_TRUE(eventually(
      5,
      [&] { return open_files(front).size() <= of_front + 2 && open_files(host).size() <= of_host + kept; }))
      << "descriptors: front " << of_front << " → " << open_files(front).size() << ", host " << of_host
      << " → " << open_files(host).size();
}

TEST_F(ProcessAttack, P52_IsAFault) { GTEST_SKIP() << "tests/faults kills the gateway mid-exec"; }

// A program cannot affect what supervises it: in a namespace that is pid 1, in a container the runner and the
// program's parent.
TEST_F(ProcessAttack, X133_NobodyChangesTheSupervisor) {
  if (!separates_agents()) GTEST_SKIP() << "as an ordinary user, agents and gateway share one uid";
  const std::string attack =
      "import ctypes, os, resource\n"
      "libc = ctypes.CDLL(None, use_errno=True)\n"
      "def ioprio(which, who):\n"
      "  if libc.syscall(251, which, who, 3 << 13) < 0: raise OSError(ctypes.get_errno(), '')\n"
      "def changed(name, change):\n"
      "  try: change()\n"
      "  except OSError as error:\n"
      "    if error.errno in (1, 3, 13, 38): return\n"
      "  print(name)\n"
      "for pid in {1, os.getppid()}:\n"
      "  changed('policy', lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0)))\n"
      "  changed('affinity', lambda: os.sched_setaffinity(pid, {0}))\n"
      "  changed('nice', lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))\n"
      "  changed('io', lambda: ioprio(1, pid))\n"
      "  changed('files', lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))\n"
      "  changed('data', lambda: resource.prlimit(pid, resource.RLIMIT_DATA, (1, 1)))\n"
      "  changed('processes', lambda: resource.prlimit(pid, resource.RLIMIT_NPROC, (0, 0)))\n"
      "print('end')\n";
  EXPECT_EQ(x().run_argv({"/usr/bin/python3", "-c", attack}).at("stdout"), "end\n");
}

TEST_F(ProcessAttack, X133_SpinningProgramsAreEndedInTime) {
  const std::string mark = new_mark();
  const std::string spin =
      "import os\n"
      "def attempt(change):\n"
      "  try: change()\n"
      "  except OSError: pass\n"
      "attempt(lambda: os.sched_setaffinity(0, {0}))\n"
      "attempt(lambda: os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0)))\n"
      "wait, go = os.pipe()\n"
      "try:\n"
      "  for i in range(200):\n"
      "    if os.fork() == 0:\n"
      "      os.setsid()\n"
      "      os.close(go)\n"
      "      os.read(wait, 1)\n"
      "      while True: pass\n"
      "except OSError: pass\n"
      "os.close(go)\n"
      "while True: pass\n";
  double took = 60;
  for (int tries = 0; tries < 3 && took > 4; ++tries) {  // other tests may slow this machine down
    Answer ended;
    const double once = seconds_of([&] {
      ended = x().post("/exec", {{"argv", {"/usr/bin/python3", "-c", spin, mark}}, {"timeout_sec", 3}});
    });
    // A container whose runner is late is killed from outside: then the outcome is unknown, and the response
    // does not wait for the Engine.
    const bool killed = shares_container() && refused(ended, 502, "outcome_unknown");
    EXPECT_TRUE(gone_within(killed ? 10 : 0, mark)) << marked(mark).size() << " are left: " << ended.text;
    EXPECT_TRUE(killed || (succeeded(ended) && ended.body.at("outcome") == "timed_out")) << ended.text;
    took = std::min(took, once);
  }
  EXPECT_LT(took, 4);
}

// A supervisor that cannot open /proc finds nothing, which does not mean that nothing is there.
TEST_F(ProcessAttack, X134_NothingOutlivesAnExecThatBlindsItsSupervisor) {
  if (!isolates()) GTEST_SKIP() << kNoIsolation;
  const std::string mark = new_mark();
  const std::string blind =
      "import os, resource\n"
      "for pid in {1, os.getppid()}:\n"
      "  for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_DATA, resource.RLIMIT_NPROC):\n"
      "    try: resource.prlimit(pid, limit, (0, 0))\n"
      "    except OSError: pass\n"
      "if os.fork() == 0:\n"
      "  os.setsid()\n"
      "  os.execvp('sleep', ['sleep', '" +
      mark +
      "'])\n"
      "if os.getppid() != 1: os.kill(os.getppid(), 9)\n";
  const Answer answer = x().post("/exec", {{"argv", {"/usr/bin/python3", "-c", blind}}, {"timeout_sec", 5}});
  EXPECT_TRUE(answer.status == 200 || answer.status == 502) << answer.text;
  EXPECT_TRUE(gone_within(answer.status == 502 ? 10 : 0.5, mark)) << answer.text;
  EXPECT_EQ(x().run("echo works").at("stdout"), "works\n");
}

// A program may also open its own streams by name.
TEST_F(ProcessAttack, X135_AProgramOpensItsStreamsByName) {
  const Json result =
      x().run("echo out > /dev/stdout; echo err > /dev/stderr; cat /dev/stdin > /proc/self/fd/1",
              {{"stdin", "in\n"}});
  EXPECT_EQ(result.at("stdout"), "out\nin\n") << result;
  EXPECT_EQ(result.at("stderr"), "err\n") << result;
}

TEST_F(ProcessAttack, R65_OpenFilesAreBounded) {
  const std::string files =
      "import os,resource\nh=resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
      "resource.setrlimit(resource.RLIMIT_NOFILE,(h,h))\nn=0\n"
      "try:\n  while n<10**6: os.dup(0); n+=1\n"
      "except OSError as e: print(e.errno, n<=16384)\n";
  EXPECT_EQ(x().run_argv({"/usr/bin/python3", "-c", files}).at("stdout"), "24 True\n");
}

TEST_F(ProcessAttack, R55_MemoryIsBoundedWhereItCanBe) {
  Json bounded{{"timeout_sec", 60}};
  if (!shares_container()) bounded["cgroup"] = {{"memory_mb", 64}};  // else the container has its own
  const Answer answer = x().exec("head -c 10G /dev/zero | tail -c 10G", bounded);
  if (answer.status == 501) GTEST_SKIP() << answer.text;
  ASSERT_TRUE(succeeded(answer));
  EXPECT_EQ(answer.body.at("outcome"), "oom_killed");
}

// A gateway that an ordinary user started: programs share its uid and may open its pipes by /proc.
std::unique_ptr<Gateway> of_a_user(const std::string& cgroup = {}) {
  GatewayOptions options;
  options.cgroup = cgroup;
  options.yaml = "allow_unisolated: true\nbackends: [{name: local}]";
  options.run_as = is_root() ? 65534 : 0;
  return std::make_unique<Gateway>(options);
}

// Another exec of the same agent opens the victim's pipe, takes what was left in it at the end, and keeps it
// from ending. The front meanwhile waits for a client that does not read.
TEST(SharedUidAttack, AThiefOfOutputDelaysNobody) {
  const auto gateway = of_a_user();
  const Caller x(*gateway, "x");
  ExecStream victim(x, {{"command", "echo $$ > new; mv new victim; exec cat /dev/zero"}, {"timeout_sec", 8}});
  ASSERT_EQ(victim.next()->at("event"), "start");
  ExecStream thief(x,
                   {{"command",
                     "until read -r pid 2>/dev/null < victim; do sleep 0.01; done; exec 9<>/proc/$pid/fd/1; "
                     "while kill -0 $pid 2>/dev/null; do sleep 0.05; done; sleep 0.5; "
                     "timeout 1 cat <&9 | wc -c; sleep 60"},
                    {"timeout_sec", 60}});
  ASSERT_EQ(thief.next()->at("event"), "start");
  const auto loot = thief.next();
  ASSERT_TRUE(loot && loot->at("event") == "stdout") << (loot ? loot->dump() : "the end");
  EXPECT_GT(std::stol(bytes_of(*loot, "data")), 0) << "nothing was left to take";
  std::vector<Json> events;
  const double took = seconds_of([&] { events = victim.rest(); });
  EXPECT_LT(took, 30) << "the end waited for bytes that somebody else had taken";
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().at("outcome"), "timed_out");
}

// Below a cgroup that is delegated to its user, it makes another and moves there.
TEST(SharedUidAttack, AProgramThatLeavesItsCgroupEndsWithItsExec) {
  if (!is_root()) GTEST_SKIP() << "only root delegates a cgroup to another user";
  std::unique_ptr<CgroupBase> above;
  for (const auto& hierarchy : detect_cgroups())
    if (hierarchy.version == 2)
      if (auto made = CgroupBase::make(hierarchy, "isogate-above")) above = std::move(*made);
  if (!above) GTEST_SKIP() << "no cgroup2 can be made here";
  const auto delegated = above->make_group("user");
  ASSERT_TRUE(delegated.ok()) << delegated.error().message;
  const std::string path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(delegated->get()));
  for (const char* file : {"", "/cgroup.procs", "/cgroup.threads", "/cgroup.subtree_control"})
    ASSERT_EQ(::chown((path + file).c_str(), 65534, 65534), 0) << file;
  const auto gateway = of_a_user(path);
  const std::string mark = new_mark();
  const std::string group =
      Caller(*gateway, "x")
          .out(
              "own=$(sed -n 's/^0:://p' /proc/self/cgroup); "
              "for top in /sys/fs/cgroup/unified /sys/fs/cgroup; do [ -w $top$own ] && break; done; "
              "for to in $top$own/../away $top$own/away; do "
              "mkdir $to 2>/dev/null && echo $$ > $to/cgroup.procs && break; done; "
              "setsid -f sleep " +
              mark + "; sed -n 's/^0:://p' /proc/self/cgroup");
  EXPECT_TRUE(group.ends_with("/away\n")) << "it stayed in " << group;
  EXPECT_TRUE(gone_within(2, mark)) << "it outlives its exec";
}

// Somebody keeps the read end of a finished program's stdin open.
TEST(SharedUidAttack, AKeptStdinKeepsNothingInTheFront) {
  const auto gateway = of_a_user();
  const Caller x(*gateway, "x");
  const pid_t front = front_of(*gateway);
  x.run("true");
  const size_t before = open_files(front).size();
  ExecStream keeper(x,
                    {{"command",
                      "for i in $(seq 8); do until read -r pid 2>/dev/null < reader$i; do sleep 0.01; done; "
                      "eval \"exec $((i + 10))< /proc/$pid/fd/0\"; echo > kept$i; done; echo all; sleep 60"},
                     {"timeout_sec", 60}});
  for (int i = 1; i <= 8; ++i) {
    const std::string n = std::to_string(i);
    const Json reader =
        x.run("echo $$ > new; mv new reader" + n + "; until [ -e kept" + n + " ]; do sleep 0.01; done",
              {{"stdin", std::string(3 << 20, 's')}, {"timeout_sec", 20}});
    ASSERT_EQ(reader.at("outcome"), "exited") << "nobody opened its stdin";
  }
  EXPECT_TRUE(eventually(5, [&] { return open_files(front).size() <= before + 4; }))
      << before << " → " << open_files(front).size() << " descriptors, eight pipes of stdin among them";
}

}  // namespace
}  // namespace isogate::test
