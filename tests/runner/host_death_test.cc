// A host that is killed takes everything it runs with it.
#include <fcntl.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include "runner/cgroup/cgroup_base.h"
#include "tests/eventually.h"
#include "tests/runner/box.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

class HostDeathTest : public RunnerTest {};
INSTANTIATE_TEST_SUITE_P(Each, HostDeathTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

pid_t start_host(Kind kind, const std::string& mark, const std::string& script, int out = -1) {
  std::string program = ISOGATE_BUILD_DIR "/bin/runner_host", way = kind == Kind::leaf ? "leaf" : "reaper",
              m = mark, s = script;
  char* const argv[] = {program.data(), way.data(), m.data(), s.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  if (out >= 0) posix_spawn_file_actions_adddup2(&actions, out, 1);
  pid_t pid = -1;
  EXPECT_EQ(::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  return pid;
}

// Also beside this process's own group, where those of a delegated cgroup are.
size_t groups_of(pid_t pid) {
  size_t count = 0;
  for (const auto& hierarchy : detect_cgroups()) {
    const std::string find = "find " + hierarchy.directory + (hierarchy.at_mount_root ? "" : "/..") +
                             " -name 'isogate-death." + std::to_string(pid) + ".*' -type d | wc -l";
    FILE* const pipe = ::popen(find.c_str(), "r");
    size_t found = 0;
    EXPECT_EQ(::fscanf(pipe, "%zu", &found), 1);
    ::pclose(pipe);
    count += found;
  }
  return count;
}

bool no_groups_within(pid_t pid, double seconds) {
  return eventually(seconds, [&] { return groups_of(pid) == 0; });
}

const char* const kDetached =
    "trap '' HUP TERM; setsid sleep 100 & nohup sleep 100 >/dev/null 2>&1 & (setsid sh -c 'sleep 100; true' "
    "&) ; "
    "while :; do sleep 100; done";

TEST_P(HostDeathTest, killed_host_leaves_nothing) {
  double best = 1e9;
  for (int attempt = 0; attempt < 5 && best > 0.25;
       ++attempt) {  // the bound applies to a machine that is not overloaded
    const std::string mark = new_mark();
    const pid_t host = start_host(GetParam(), mark, kDetached);
    ASSERT_TRUE(there_within(mark, 6, 30)) << marked(mark).size();
    ::kill(host, SIGKILL);
    const auto start = std::chrono::steady_clock::now();
    ASSERT_TRUE(gone_within(mark, 10)) << marked(mark).size();
    best = std::min(best, since(start));
    ::waitpid(host, nullptr, 0);
    EXPECT_TRUE(no_groups_within(host, 10));
  }
  EXPECT_LE(best, 0.25);
}

TEST_P(HostDeathTest, crashed_host_leaves_nothing) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGTERM}) {
    const std::string mark = new_mark();
    const pid_t host = start_host(GetParam(), mark, kDetached);
    ASSERT_TRUE(there_within(mark, 6, 30));
    ::kill(host, signal);
    EXPECT_TRUE(gone_within(mark, 10)) << signal;
    ::waitpid(host, nullptr, 0);
    EXPECT_TRUE(no_groups_within(host, 10));
  }
}

TEST_P(HostDeathTest, streams_of_a_dead_host_end) {
  auto pipe = make_pipe();
  const std::string mark = new_mark();
  const pid_t host = start_host(GetParam(), mark, "while :; do sleep 100; done", pipe->write.get());
  pipe->write.reset();
  ASSERT_TRUE(there_within(mark, 2, 30));
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
  char byte = 0;
  EXPECT_EQ(::read(pipe->read.get(), &byte, 1), 0);  // nobody, watcher included, holds the other end
}

TEST_P(HostDeathTest, orderly_end_leaves_no_group_and_no_watcher) {
  const std::string mark = new_mark();
  const pid_t host = start_host(GetParam(), mark, "sleep 100 & true");
  int status = -1;
  ASSERT_EQ(::waitpid(host, &status, 0), host);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(groups_of(host), 0u);
  EXPECT_TRUE(marked(mark).empty());
}

std::string field(pid_t pid, const std::string& name) {
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(name + ":")) return line.substr(line.find_first_not_of(" \t", name.size() + 1));
  }
  return "";
}

pid_t child_named(pid_t parent, const std::string& name) {
  std::ifstream children("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) + "/children");
  for (pid_t pid = 0; children >> pid;) {
    if (field(pid, "Name") == name) return pid;
  }
  return -1;
}

std::string environment_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(WatcherTest, keeps_nothing_of_its_host) {
  if (!leaves_work()) GTEST_SKIP() << shared_runner(Kind::leaf).abilities().missing;
  const std::string mark = new_mark();
  const pid_t host = start_host(Kind::leaf, mark, "sleep 100");
  ASSERT_TRUE(there_within(mark, 1, 30));
  const pid_t watcher = child_named(host, "isogate-watch");
  ASSERT_GT(watcher, 0);
  // It frees memory before it waits for its host's death, the stack with its environment last.
  const auto start = std::chrono::steady_clock::now();
  while (!environment_of(watcher).empty() && since(start) < 30) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(environment_of(watcher), "");
  const long resident = std::atol(field(watcher, "RssAnon").c_str());
  EXPECT_LT(resident, 200) << "KiB of private memory";
  EXPECT_EQ(field(watcher, "SigBlk"), "fffffffffffbfeff");  // all but SIGKILL and SIGSTOP
  ::kill(host, SIGTERM);
  ::waitpid(host, nullptr, 0);
  EXPECT_TRUE(gone_within(mark, 10));
}

// A host of another pid namespace may have the same pid, and then its groups have the same names.
TEST(WatcherTest, a_group_that_is_made_again_is_not_its_hosts) {
  if (!leaves_work()) GTEST_SKIP() << shared_runner(Kind::leaf).abilities().missing;
  const std::string mark = new_mark();
  const pid_t host = start_host(Kind::leaf, mark, "sleep 100");
  ASSERT_TRUE(there_within(mark, 1, 30));
  std::string v1, v2;
  for (const auto& hierarchy : detect_cgroups()) {
    const std::string base = directory_of_groups(hierarchy) + "/isogate-death." + std::to_string(host) + ".0";
    if (::access(base.c_str(), F_OK) == 0) (hierarchy.version == 1 ? v1 : v2) = base;
  }
  pid_t bystander = -1;
  if (!v1.empty() && !v2.empty() && (bystander = ::fork()) == 0) {
    ::pause();
    ::_exit(0);
  }
  if (bystander > 0) {  // v1 cannot be removed
    EXPECT_TRUE(write_small_file(AT_FDCWD, v1 + "/cgroup.procs", std::to_string(bystander)).ok());
  }
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
  if (bystander <= 0) GTEST_SKIP() << "it has a group in one hierarchy only";
  EXPECT_TRUE(eventually(5, [&] { return ::access(v2.c_str(), F_OK) != 0; }));
  Fd again;  // locked, so that no sweeper takes it for a dead one's
  EXPECT_TRUE(eventually(1, [&] {
    ::mkdir(v2.c_str(), 0755);
    again = Fd(::open(v2.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return again && ::flock(again.get(), LOCK_EX | LOCK_NB) == 0 && ::access(v2.c_str(), F_OK) == 0;
  }));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the watcher looks every 5 ms
  EXPECT_EQ(::rmdir(v2.c_str()), 0) << "the watcher has removed it";
  ::kill(bystander, SIGKILL);
  ::waitpid(bystander, nullptr, 0);
  EXPECT_TRUE(gone_within(mark, 10));
  EXPECT_TRUE(no_groups_within(host, 10));
}

TEST(SweepTest, bases_of_dead_runners_are_swept_and_those_of_living_ones_spared) {
  const auto hierarchies = detect_cgroups();
  const std::string group = "isogate-sweep-" + std::to_string(::getpid());
  size_t tried = 0;
  for (const auto& hierarchy : hierarchies) {
    auto living = CgroupBase::make(hierarchy, group);
    if (!living) continue;
    ++tried;
    const std::string parent = "/proc/self/fd/" + std::to_string((*living)->parent_fd()) + "/" + group;
    const std::string dead = parent + ".1.0", other = parent + ".x";
    ASSERT_EQ(::mkdir(dead.c_str(), 0755), 0);
    ASSERT_EQ(::mkdir((dead + "/e0").c_str(), 0755), 0);
    ASSERT_EQ(::mkdir(other.c_str(), 0755), 0);  // not one of our names
    {
      auto next = CgroupBase::make(hierarchy, group);
      ASSERT_TRUE(next.ok()) << next.error().message;
      EXPECT_NE((*next)->name(), (*living)->name());
      EXPECT_NE(::access(dead.c_str(), F_OK), 0);
      EXPECT_EQ(::faccessat((*living)->parent_fd(), (*living)->name().c_str(), F_OK, 0), 0);
      EXPECT_EQ(::access(other.c_str(), F_OK), 0);
    }
    ::rmdir(other.c_str());
  }
  if (tried == 0) GTEST_SKIP() << "no cgroup can be created here";
}

TEST(SweepTest, what_runs_in_a_dead_ones_leaf_is_killed) {
  if (!leaves_work()) GTEST_SKIP() << shared_runner(Kind::leaf).abilities().missing;
  const std::string mark = new_mark();
  const pid_t host = start_host(Kind::leaf, mark, kDetached);
  ASSERT_TRUE(there_within(mark, 6, 30));
  const pid_t watcher = child_named(host, "isogate-watch");
  ::kill(watcher, SIGKILL);  // now nothing watches it
  ::kill(host, SIGKILL);
  ::waitpid(host, nullptr, 0);
  // It has the lock of the base until it is dead, or a zombie: zombies have no program.
  const std::string program = "/proc/" + std::to_string(watcher) + "/exe";
  char ignored[8];
  for (int i = 0; i < 500 && ::readlink(program.c_str(), ignored, sizeof ignored) > 0; ++i) ::usleep(10'000);
  EXPECT_FALSE(marked(mark).empty());
  RunnerOptions options;
  options.group = "isogate-death";
  const auto next = Runner::make(options);
  EXPECT_TRUE(gone_within(mark, 5));
  EXPECT_TRUE(no_groups_within(host, 5));
}

}  // namespace
}  // namespace isogate::test
