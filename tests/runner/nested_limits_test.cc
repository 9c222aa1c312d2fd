#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>

#include "runner/cgroup/cgroup.h"
#include "runner/cgroup/cgroup_limits.h"
#include "runner/exec/apart.h"

// The groups of a sandbox, and those of its runs in them.
namespace isogate::test {
namespace {

class NestedLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    groups_ = Cgroups::make("isogate-nested", false);
    const uint64_t all = ISOGATE_CAP_LIMIT_MEMORY | ISOGATE_CAP_LIMIT_CPU | ISOGATE_CAP_LIMIT_PIDS;
    if ((groups_->capabilities() & all) != all) GTEST_SKIP() << groups_->missing();
  }
  std::unique_ptr<Cgroups> groups_;
};

TEST_F(NestedLimits, AreInForceAsAsked) {
  const auto nested = groups_->nest(
      {{ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20}, {ISOGATE_LIMIT_CPU_MILLIS, 1500}, {ISOGATE_LIMIT_PIDS, 32}},
      false);
  ASSERT_TRUE(nested.ok()) << nested.error().message;
  const Limits found = (*nested)->in_force();
  EXPECT_EQ(found.get(ISOGATE_LIMIT_MEMORY_BYTES), 64u << 20);
  EXPECT_EQ(found.get(ISOGATE_LIMIT_CPU_MILLIS), 1500u);
  EXPECT_EQ(found.get(ISOGATE_LIMIT_PIDS), 32u);
}

TEST_F(NestedLimits, OnlyWhatWasAskedForIsSet) {
  const auto nested = groups_->nest({{ISOGATE_LIMIT_PIDS, 16}}, false);
  ASSERT_TRUE(nested.ok());
  const Limits found = (*nested)->in_force();
  EXPECT_EQ(found.get(ISOGATE_LIMIT_PIDS), 16u);
  EXPECT_EQ(found.get(ISOGATE_LIMIT_MEMORY_BYTES) + found.get(ISOGATE_LIMIT_CPU_MILLIS), 0u);
  auto slot = (*nested)->acquire({}, false);
  ASSERT_TRUE(slot.ok());
  EXPECT_EQ(slot->limits.size() + (slot->leaf ? 1 : 0), 1u) << "one hierarchy must be joined";
  (*nested)->release(std::move(*slot));
}

// The counter that shows whose memory ran out belongs to the run's own group, which later runs use again.
TEST_F(NestedLimits, ARunHasItsOwnCounter) {
  const auto nested = groups_->nest({{ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20}}, false);
  ASSERT_TRUE(nested.ok());
  auto one = (*nested)->acquire({}, false), two = (*nested)->acquire({}, false);
  ASSERT_TRUE(one.ok() && two.ok());
  ASSERT_TRUE(one->oom_events && two->oom_events);
  if (!one->limits.empty()) {
    EXPECT_NE(one->limits[0].name, two->limits[0].name);
    const std::string name = one->limits[0].name;
    (*nested)->release(std::move(*one));
    auto three = (*nested)->acquire({}, false);
    ASSERT_TRUE(three.ok());
    EXPECT_EQ(three->limits[0].name, name);
    (*nested)->release(std::move(*three));
  } else {
    (*nested)->release(std::move(*one));
  }
  (*nested)->release(std::move(*two));
}

TEST_F(NestedLimits, ARunThatAsksForMoreProcessorTimeThanAllHaveGetsTheirs) {
  const auto nested = groups_->nest({{ISOGATE_LIMIT_CPU_MILLIS, 500}}, false);
  ASSERT_TRUE(nested.ok());
  auto slot = (*nested)->acquire({{ISOGATE_LIMIT_CPU_MILLIS, 1500}}, false);
  ASSERT_TRUE(slot.ok()) << slot.error().message;
  (*nested)->release(std::move(*slot));
}

// For the time of a kill that takes long.
TEST_F(NestedLimits, TheProcessorTimeOfAllIsRaisedByOneProcessorAndLoweredAgain) {
  const auto nested = groups_->nest({{ISOGATE_LIMIT_CPU_MILLIS, 250}}, false);
  ASSERT_TRUE(nested.ok());
  auto slot = (*nested)->acquire({}, false);
  ASSERT_TRUE(slot.ok()) << slot.error().message;
  const CpuQuota quota = slot->quota;
  ASSERT_GE(quota.shared_fd, 0);
  const auto raised =
      write_small_file(quota.shared_fd, quota.version == 1 ? "cpu.cfs_quota_us" : "cpu.max", quota.raised);
  ASSERT_TRUE(raised.ok()) << raised.error().message;
  EXPECT_EQ(read_cpu_limit(quota.shared_fd, quota.version), 1250u);
  slot->quota_raised = true;
  (*nested)->release(std::move(*slot));
  EXPECT_EQ((*nested)->in_force().get(ISOGATE_LIMIT_CPU_MILLIS), 250u);
}

TEST_F(NestedLimits, ARunMayHaveALimitThatAllTogetherHaveNot) {
  const auto nested = groups_->nest({{ISOGATE_LIMIT_PIDS, 64}}, false);
  ASSERT_TRUE(nested.ok());
  for (const Limits& limits :
       {Limits{{ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20}}, Limits{{ISOGATE_LIMIT_CPU_MILLIS, 500}}}) {
    auto slot = (*nested)->acquire(limits, false);
    ASSERT_TRUE(slot.ok()) << slot.error().message;
    (*nested)->release(std::move(*slot));
  }
}

// The host keeps a quarter of its process numbers, however many sandboxes there are.
TEST_F(NestedLimits, AllRunsTogetherAreBounded) {
  const CgroupBase* bounded = nullptr;
  for (const auto& base : groups_->bases())
    if (read_pids_limit(base->fd()) != 0) bounded = base.get();
  ASSERT_NE(bounded, nullptr);
  const uint64_t most = most_pids_below(bounded->parent_fd());
  EXPECT_GT(most, 0U);
  EXPECT_EQ(read_pids_limit(bounded->fd()), most);
  if (bounded->version() == 2) return;  // all leaves are below it
  const auto is_counted = [](Cgroups& groups) {
    auto slot = groups.acquire({}, false);
    if (!slot) return false;
    bool counted = false;
    for (const auto& limit : slot->limits)
      counted = counted || ::faccessat(limit.base->fd(), "pids.max", F_OK, 0) == 0;
    groups.release(std::move(*slot));
    return counted;
  };
  EXPECT_TRUE(is_counted(*groups_)) << "a run without a limit";
  Fd name_space;
  const auto nested = groups_->nest({}, false, &name_space);
  ASSERT_TRUE(nested.ok());
  EXPECT_TRUE(is_counted(**nested)) << "in a sandbox without a limit";
  EXPECT_TRUE(name_space) << "its programs would see this host's path of the group";
}

TEST_F(NestedLimits, DiskIsRefusedOrLeftOut) {
  EXPECT_TRUE(groups_->nest({{ISOGATE_LIMIT_PIDS, 16}}, true).ok());
  EXPECT_FALSE(groups_->check({{ISOGATE_LIMIT_DISK_BYTES, 1}}).ok());
}

TEST_F(NestedLimits, TheyGoWithTheirOwner) {
  std::string path;
  {
    const auto nested = groups_->nest(
        {{ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20}, {ISOGATE_LIMIT_CPU_MILLIS, 1000}, {ISOGATE_LIMIT_PIDS, 32}},
        false);
    ASSERT_TRUE(nested.ok());
    const int group = (*nested)->bases().front()->fd();
    path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(group));
    auto slot = (*nested)->acquire({{ISOGATE_LIMIT_MEMORY_BYTES, 16u << 20}, {ISOGATE_LIMIT_PIDS, 8}}, false);
    ASSERT_TRUE(slot.ok()) << slot.error().message;
    EXPECT_EQ(::access(path.c_str(), F_OK), 0);
    (*nested)->release(std::move(*slot));
  }
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << path;
}

// Without any cgroup a missing controller's place is that of the missing cgroup2 hierarchy.
TEST(LimitsWithoutAController, AreInNoLeaf) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to unmount cgroups";
  const auto done = run_apart([]() -> Result<void> {
    if (::unshare(CLONE_NEWNS) != 0) return os_error("unshare", errno);
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return os_error("private", errno);
    if (::umount2("/sys/fs/cgroup", MNT_DETACH) != 0) return os_error("umount", errno);
    const auto none = Cgroups::make("isogate-none", false);
    EXPECT_EQ(none->capabilities(), 0U);
    EXPECT_FALSE(none->in_leaf({{ISOGATE_LIMIT_MEMORY_BYTES, 64u << 20}, {ISOGATE_LIMIT_PIDS, 16}}));
    return {};
  });
  EXPECT_TRUE(done.ok()) << done.error().message;
}

}  // namespace
}  // namespace isogate::test
