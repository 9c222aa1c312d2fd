#include "runner/cgroup/cgroup_detect.h"

#include <gtest/gtest.h>

namespace isogate::test {
namespace {

TEST(CgroupDetectTest, pure_v2) {
  const auto found =
      parse_cgroups("30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
                    "0::/system.slice/isogate.service\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].version, 2);
  EXPECT_EQ(found[0].directory, "/sys/fs/cgroup/system.slice/isogate.service");
  EXPECT_FALSE(found[0].at_mount_root);
}

TEST(CgroupDetectTest, hybrid_with_controllers_mounted_together) {
  const auto found = parse_cgroups(
      "32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
      "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
      "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n"
      "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
      "5:name=systemd:/\n4:memory:/a/b\n1:cpu,cpuacct:/x\n0::/\n");
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[1].directory, "/sys/fs/cgroup/memory/a/b");
  EXPECT_EQ(found[2].directory, "/sys/fs/cgroup/cpu,cpuacct/x");
  EXPECT_EQ(found[2].controllers, (std::vector<std::string>{"cpu", "cpuacct"}));
  EXPECT_EQ(found[3].version, 2);
  EXPECT_TRUE(found[3].at_mount_root);
}

TEST(CgroupDetectTest, mount_of_a_part_of_the_hierarchy) {
  const std::string mount = "35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
  auto found = parse_cgroups(mount, "4:memory:/docker/abc\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].directory, "/sys/fs/cgroup/memory");
  found = parse_cgroups(mount, "4:memory:/docker/abc/sub\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].directory, "/sys/fs/cgroup/memory/sub");
  EXPECT_TRUE(parse_cgroups(mount, "4:memory:/docker/abcd\n").empty());
  EXPECT_TRUE(parse_cgroups(mount, "4:memory:/\n").empty());
}

TEST(CgroupDetectTest, what_lies_outside_the_namespace_is_left_out) {
  EXPECT_TRUE(parse_cgroups("30 23 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/\n").empty());
  EXPECT_TRUE(
      parse_cgroups("30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n", "0::/../other\n").empty());
}

TEST(CgroupDetectTest, odd_lines_are_skipped) {
  EXPECT_TRUE(parse_cgroups("", "").empty());
  EXPECT_TRUE(parse_cgroups("garbage\n- - -\n1 2 3\n", "no colons\n1:\n").empty());
  const auto found =
      parse_cgroups("30 23 0:26 / /sys/fs/c\\040g rw - cgroup2 cgroup2 rw\n", "0::/with:colon\n");
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].directory, "/sys/fs/c g/with:colon");
}

}  // namespace
}  // namespace isogate::test
