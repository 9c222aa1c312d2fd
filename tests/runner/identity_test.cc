// A program with its own identity, and what it finds.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "lib/fd.h"
#include "runner/enclosure/measure.h"
#include "tests/own_machine.h"
#include "tests/runner/box.h"

namespace isogate::test {
namespace {

constexpr uint32_t kIdentityUid = 61998, kGid = 61999;

class IdentityTest : public RunnerTest {
 protected:
  void SetUp() override {
    RunnerTest::SetUp();
    if (!is_root()) GTEST_SKIP() << "only root may change identities";
  }
};
INSTANTIATE_TEST_SUITE_P(Each, IdentityTest, testing::Values(Kind::leaf, Kind::reaper), name_of);

TEST_P(IdentityTest, program_has_the_ids_no_group_and_no_capability) {
  Command command(Site::host());
  command.argv = {"grep", "-E", "^(Uid|Gid|Groups|Cap...|NoNewPrivs)", "/proc/self/status"};
  command.identity = {true, kIdentityUid, kGid};
  const auto output = run_captured(runner(), command);
  const std::string none = "0000000000000000\n";
  EXPECT_EQ(output.out,
            "Uid:\t61998\t61998\t61998\t61998\nGid:\t61999\t61999\t61999\t61999\nGroups:\t \nCapInh:\t" +
                none + "CapPrm:\t" + none + "CapEff:\t" + none + "CapBnd:\t" + none + "CapAmb:\t" + none +
                "NoNewPrivs:\t1\n")
      << output.err;
}

TEST_P(IdentityTest, a_host_of_few_descriptors_measures_too) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::close_range(3, ~0U, 0);  // descriptors of other tests' runners
    const rlimit few{400, 400};
    if (::setrlimit(RLIMIT_NOFILE, &few) != 0 || !drop_capabilities(1U << CAP_SYS_RESOURCE)) ::_exit(2);
    RunnerOptions options;
    options.use_leaf = GetParam() == Kind::leaf;
    const auto runner = Runner::make(options);
    const auto evidence = runner->measure(Site::host(), {true, kIdentityUid, kGid}, {});
    if (!evidence.ok()) std::fprintf(stderr, "%s\n", evidence.error().message.c_str());
    ::_exit(evidence.ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// A host with a thousand sandboxes has more descriptors than one of its programs may open.
TEST_P(IdentityTest, many_descriptors_of_the_host_hide_nothing) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit many{std::max<rlim_t>(before.rlim_cur, 4096), std::max<rlim_t>(before.rlim_max, 4096)};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &many), 0);
  std::vector<Fd> held;
  while (held.size() < 2000) held.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  const auto evidence = runner().measure(Site::host(), {true, kIdentityUid, kGid}, {});
  EXPECT_TRUE(evidence.ok()) << evidence.error().message;
  Command command = shell("exec 5</dev/null; echo opened");
  command.identity = {true, kIdentityUid, kGid};
  EXPECT_EQ(run_captured(runner(), command).out, "opened\n");
  held.clear();
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
}

// The kernel would let every program trace the child that becomes the next one, which shares the host's
// memory.
TEST_P(IdentityTest, nothing_runs_where_programs_could_trace_their_host) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (!own_suid_dumpable()) ::_exit(77);
    RunnerOptions options;
    options.use_leaf = GetParam() == Kind::leaf;
    const auto runner = Runner::make(options);
    Command command = shell("true");
    command.identity = {true, kIdentityUid, kGid};
    const auto ending = runner->run(command);
    const bool named = !ending.ok() && ending.error().message.find("fs.suid_dumpable") != std::string::npos;
    ::_exit(named && !runner->measure(Site::host(), command.identity, {}).ok() ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "no file can be mounted over a sysctl here";
  EXPECT_EQ(status, 0);
}

TEST_P(IdentityTest, root_without_capabilities_stays_without) {
  Command command(Site::host());
  command.argv = {"grep", "-E", "^(Uid|Cap(Prm|Bnd))", "/proc/self/status"};
  command.identity = {true, 0, 0};
  EXPECT_EQ(run_captured(runner(), command).out,
            "Uid:\t0\t0\t0\t0\nCapPrm:\t0000000000000000\nCapBnd:\t0000000000000000\n");
}

TEST_P(IdentityTest, program_cannot_reach_what_its_uid_cannot) {
  char pattern[] = "/tmp/isogate-closed-XXXXXX";
  const std::string path = ::mkdtemp(pattern);  // 0700, root's
  const Fd cwd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  Command command = shell("true");
  command.identity = {true, kIdentityUid, kGid};
  command.cwd_fd = cwd.get();
  const auto refused = runner().run(command);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_PERMISSION_DENIED);
  command.cwd_fd = -1;
  command.argv = {"sh", "-c",
                  "kill -9 $PPID; kill -0 " + std::to_string(::getpid()) + " || cat /proc/$PPID/environ"};
  const auto output = run_captured(runner(), command);
  ASSERT_TRUE(output.ending.ok());
  EXPECT_EQ(output.out, "");
  EXPECT_NE(output.ending->exit_code, 0);
  ::rmdir(path.c_str());
}

TEST_P(IdentityTest, kill_everything_spares_the_host) {
  Command command = shell("kill -9 -1; true");
  command.identity = {true, kIdentityUid, kGid};
  EXPECT_TRUE(run_captured(runner(), command).ending.ok());
}

TEST_P(IdentityTest, evidence_is_measured_in_such_a_child) {
  const auto evidence = runner().measure(Site::host(), {true, kIdentityUid, kGid}, {});
  ASSERT_TRUE(evidence.ok()) << evidence.error().message;
  EXPECT_EQ(evidence->flags, ISOGATE_EVIDENCE_MEASURED);
  EXPECT_EQ(evidence->uid, kIdentityUid);
  EXPECT_EQ(evidence->gid, kGid);
  EXPECT_EQ(evidence->no_new_privs, 1u);
  EXPECT_EQ(evidence->cap_inheritable | evidence->cap_permitted | evidence->cap_effective |
                evidence->cap_bounding | evidence->cap_ambient,
            0u);
  struct stat own {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &own), 0);
  EXPECT_EQ(evidence->ns_net, own.st_ino);
  ASSERT_EQ(::stat("/proc/self/ns/cgroup", &own), 0);
  EXPECT_EQ(evidence->ns_cgroup, own.st_ino);
  EXPECT_GE(evidence->visible_processes, 3u);
}

TEST(IdentityAsAnyUserTest, evidence_of_this_very_process) {
  const auto runner = Runner::make({});
  const auto evidence = runner->measure(Site::host(), {}, {});
  ASSERT_TRUE(evidence.ok()) << evidence.error().message;
  EXPECT_EQ(evidence->uid, ::getuid());
  EXPECT_EQ(evidence->no_new_privs, 1u);
}

TEST(IdentityAsAnyUserTest, change_without_the_right_is_an_error) {
  if (is_root()) GTEST_SKIP() << "root may change identities";
  const auto runner = Runner::make({});
  Command command = shell("true");
  command.identity = {true, kIdentityUid, kGid};
  const auto refused = runner->run(command);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_PERMISSION_DENIED);
}

TEST(EvidenceTest, incomplete_portrait_is_an_error) {
  SelfPortrait portrait{};
  EXPECT_FALSE(evidence_from(portrait).ok());
  const std::string status =
      "Uid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nCapInh:\t1\nCapPrm:\tff\nCapEff:\t0\nCapBnd:\t0\nCapAmb:\t0\n"
      "NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
  status.copy(portrait.status, status.size());
  portrait.status_size = static_cast<uint32_t>(status.size());
  for (auto& name : portrait.namespaces) std::string("mnt:[42]").copy(name, sizeof name);
  EXPECT_FALSE(evidence_from(portrait).ok());
  portrait.complete = 1;
  const auto evidence = evidence_from(portrait);
  ASSERT_TRUE(evidence.ok());
  EXPECT_EQ(evidence->uid, 4u);
  EXPECT_EQ(evidence->cap_permitted, 0xffu);
  EXPECT_EQ(evidence->seccomp_mode, 2u);
  EXPECT_EQ(evidence->ns_user, 42u);
  portrait.status[0] = 'X';
  EXPECT_FALSE(evidence_from(portrait).ok());
}

}  // namespace
}  // namespace isogate::test
