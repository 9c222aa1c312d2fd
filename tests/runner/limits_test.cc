// A limit is in force, or the run is refused.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>

#include "runner/cgroup/cgroup_base.h"
#include "runner/cgroup/cgroup_limits.h"
#include "tests/runner/box.h"

namespace isogate::test {
namespace {

constexpr uint64_t kMiB = 1 << 20;

class LimitsTest : public RunnerTest {
 protected:
  [[nodiscard]] bool can(uint64_t capability) const {
    return (runner().abilities().capabilities & capability) != 0;
  }
  [[nodiscard]] const std::string& missing() const { return runner().abilities().missing; }
};
INSTANTIATE_TEST_SUITE_P(Each, LimitsTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

// The program's group in one controller's hierarchy, and the content of a file there.
const char* const kReadLimit = R"(
controller=$1 file1=$2 file2=$3
path=$(sed -n "s/^[0-9]*:\([^:]*,\)*$controller\(,[^:]*\)*://p" /proc/self/cgroup)
if [ -n "$path" ]; then cat /sys/fs/cgroup/$controller$path/$file1
else cat /sys/fs/cgroup$(sed -n 's/^0:://p' /proc/self/cgroup)/$file2; fi
)";

std::string limit_seen(Runner& runner, const Limits& limits, const std::string& controller,
                       const std::string& v1_file, const std::string& v2_file) {
  Command command = shell(kReadLimit);
  command.argv.insert(command.argv.end(), {"sh", controller, v1_file, v2_file});
  command.limits = limits;
  const auto output = run_captured(runner, command);
  EXPECT_TRUE(output.ending.ok()) << output.ending.error().message;
  return output.out + output.err;
}

TEST_P(LimitsTest, memory_limit_kills_the_whole_exec_and_nothing_else) {
  if (!can(ISOGATE_CAP_LIMIT_MEMORY)) GTEST_SKIP() << missing();
  const std::string mark = new_mark();
  // On v1 the shell itself survives the first kill; its children must not.
  Command command = shell("sleep 100 & tail /dev/zero; echo survived; sleep 100", mark);
  command.limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 48 * kMiB);
  const auto start = std::chrono::steady_clock::now();
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_TRUE(output.ending->oom_killed);
  EXPECT_FALSE(output.ending->killed);
  EXPECT_EQ(output.ending->term_signal, SIGKILL);
  EXPECT_LT(since(start), 60);
  EXPECT_TRUE(marked(mark).empty());
  EXPECT_EQ(run("echo alive").out, "alive\n");
}

TEST_P(LimitsTest, program_within_its_memory_limit_is_not_oom_killed) {
  if (!can(ISOGATE_CAP_LIMIT_MEMORY)) GTEST_SKIP() << missing();
  Command command = shell("head -c 20000000 /dev/zero | tail -c 10000000 | wc -c");
  command.limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 128 * kMiB);
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_FALSE(output.ending->oom_killed);
  EXPECT_EQ(output.out, "10000000\n");
}

TEST_P(LimitsTest, memory_limit_is_in_force_from_the_first_instruction) {
  if (!can(ISOGATE_CAP_LIMIT_MEMORY)) GTEST_SKIP() << missing();
  Limits limits;
  limits.set(ISOGATE_LIMIT_MEMORY_BYTES, 64 * kMiB + 123);  // rounded down to pages
  EXPECT_EQ(limit_seen(runner(), limits, "memory", "memory.limit_in_bytes", "memory.max"), "67108864\n");
}

TEST_P(LimitsTest, pids_limit_bounds_processes) {
  if (!can(ISOGATE_CAP_LIMIT_PIDS)) GTEST_SKIP() << missing();
  Limits limits;
  limits.set(ISOGATE_LIMIT_PIDS, 5);
  EXPECT_EQ(limit_seen(runner(), limits, "pids", "pids.max", "pids.max"), "5\n");
  const std::string mark = new_mark();
  Command command = shell("for i in 1 2 3 4 5 6 7 8 9; do sleep 100 & done; echo all", mark);
  command.limits.set(ISOGATE_LIMIT_PIDS, 5);
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok());
  EXPECT_NE(output.out, "all\n");
  EXPECT_NE(output.err.find("fork"), std::string::npos) << output.err;
  EXPECT_TRUE(marked(mark).empty());
}

TEST_P(LimitsTest, cpu_limit_is_in_force) {
  if (!can(ISOGATE_CAP_LIMIT_CPU)) GTEST_SKIP() << missing();
  Limits limits;
  limits.set(ISOGATE_LIMIT_CPU_MILLIS, 250);
  const std::string seen = limit_seen(runner(), limits, "cpu", "cpu.cfs_quota_us", "cpu.max");
  EXPECT_TRUE(seen == "25000\n" || seen == "25000 100000\n") << seen;
  limits.set(ISOGATE_LIMIT_CPU_MILLIS, 3);
  const std::string least = limit_seen(runner(), limits, "cpu", "cpu.cfs_quota_us", "cpu.max");
  EXPECT_TRUE(least == "3000\n" || least == "3000 1000000\n") << least;
  Command command = shell("timeout 1 sh -c 'while :; do :; done'");
  command.limits.set(ISOGATE_LIMIT_CPU_MILLIS, 200);
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok());
  EXPECT_LT(output.ending->cpu_ns, output.ending->wall_ns / 2);
}

TEST_P(LimitsTest, all_limits_together_and_with_another_identity) {
  const uint64_t all = ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_PIDS | ISOGATE_CAP_LIMIT_CPU;
  if ((runner().abilities().capabilities & all) != all) GTEST_SKIP() << missing();
  Command command = shell("id -u; echo fine | cat");
  command.limits = {
      {ISOGATE_LIMIT_MEMORY_BYTES, 64 * kMiB}, {ISOGATE_LIMIT_CPU_MILLIS, 1500}, {ISOGATE_LIMIT_PIDS, 20}};
  command.identity = {is_root(), 61997, 61997};
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok()) << output.ending.error().message;
  EXPECT_EQ(output.out, (is_root() ? "61997" : std::to_string(::getuid())) + "\nfine\n");
}

TEST_P(LimitsTest, what_cannot_be_enforced_is_refused) {
  Command command = shell("true");
  command.limits.set(ISOGATE_LIMIT_DISK_BYTES, 1);
  EXPECT_EQ(runner().run(command).error().status, ISOGATE_UNSUPPORTED);
  command.limits = {};
  command.limits.set(ISOGATE_LIMIT_CPU_MILLIS, 2'000'000);
  const auto huge = runner().run(command);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.error().status, ISOGATE_UNSUPPORTED);
  RunnerOptions none;
  none.use_cgroups = false;
  const auto bare = Runner::make(none);
  EXPECT_EQ(bare->abilities().capabilities & (ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_PIDS), 0u);
  for (const Limits& limits : {Limits{{ISOGATE_LIMIT_MEMORY_BYTES, kMiB}},
                               Limits{{ISOGATE_LIMIT_CPU_MILLIS, 100}}, Limits{{ISOGATE_LIMIT_PIDS, 5}}}) {
    command.limits = limits;
    const auto refused = bare->run(command);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().status, ISOGATE_UNSUPPORTED);
  }
}

TEST_P(LimitsTest, groups_are_removed_after_each_run) {
  if (!can(ISOGATE_CAP_LIMIT_PIDS)) GTEST_SKIP() << missing();
  auto groups = [] {
    size_t count = 0;
    for (const auto& hierarchy : detect_cgroups()) {
      if (hierarchy.version == 2) continue;
      const std::string find = "find " + hierarchy.directory + " -path '*isogate-test." +
                               std::to_string(::getpid()) + ".*' -name 'e*' -type d | wc -l";
      FILE* const pipe = ::popen(find.c_str(), "r");
      size_t found = 0;
      EXPECT_EQ(::fscanf(pipe, "%zu", &found), 1);
      ::pclose(pipe);
      count += found;
    }
    return count;
  };
  for (int i = 0; i < 5; ++i) {
    Command command = shell("sleep 100 & setsid sleep 100 & true");
    command.limits.set(ISOGATE_LIMIT_PIDS, 20);
    ASSERT_TRUE(runner().run(command).ok());
  }
  EXPECT_EQ(groups(), 0u);
}

TEST(LimitFilesTest, value_that_does_not_read_back_is_not_in_force) {
  char pattern[] = "/tmp/isogate-limits-XXXXXX";
  const std::string path = ::mkdtemp(pattern);
  const Fd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(set_pids_limit(directory.get(), 1, 5).ok());  // no such file
  ASSERT_EQ(::symlink("/dev/null", (path + "/pids.max").c_str()), 0);
  EXPECT_FALSE(set_pids_limit(directory.get(), 1, 5).ok());  // not the kernel's
  ::unlinkat(directory.get(), "pids.max", 0);
  Fd file(::openat(directory.get(), "pids.max", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
  ASSERT_EQ(::write(file.get(), "100\n", 4), 4);
  const auto set = set_pids_limit(directory.get(), 1, 5);  // reads back as 500
  ASSERT_FALSE(set.ok());
  EXPECT_NE(set.error().message.find("was set to 5 and reads 500"), std::string::npos) << set.error().message;
  ::unlinkat(directory.get(), "pids.max", 0);
  ::rmdir(path.c_str());
}

}  // namespace
}  // namespace isogate::test
