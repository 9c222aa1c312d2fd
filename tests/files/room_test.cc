#include "runner/files/workspace_room.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "runner/cgroup/cgroup.h"
#include "runner/cgroup/cgroup_limits.h"
#include "runner/files/workspace_trash.h"
#include "tests/files/box.h"

namespace isogate::test {
namespace {

// The sandboxes on a file system of 64 MiB.
class SmallDisk : public Box {
 protected:
  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "needs root to mount a file system";
    workspace_.reset();
    ASSERT_EQ(Workspace::purge(sandboxes_, kId).ok(), true);
    if (::mount("none", sandboxes_.c_str(), "tmpfs", 0, "size=64m,mode=0755") != 0)
      GTEST_SKIP() << "no mount: " << std::strerror(errno);
    mounted_ = true;
    open();
  }
  void TearDown() override {
    workspace_.reset();
    if (mounted_) ::umount2(sandboxes_.c_str(), MNT_DETACH);
  }
  uint64_t free_bytes() const {
    struct statvfs info {};
    EXPECT_EQ(::statvfs(sandboxes_.c_str(), &info), 0);
    return info.f_bavail * info.f_frsize;
  }
  // As a program of a tenant fills the disk.
  void fill() const {
    const Fd file(::open((sandboxes_ + "/all").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    const std::string block(1 << 20, 'x');
    for (size_t size = block.size(); size > 0;)
      if (::write(file.get(), block.data(), size) <= 0) size /= 2;
  }
  Result<std::unique_ptr<Workspace>> open_other() const {
    Workspace::Options options{sandboxes_, kOtherId, tenant(), nullptr, false, "test"};
    return Workspace::open(options, false);
  }

  bool mounted_ = false;
};

TEST_F(SmallDisk, KeepsItsLastFromUploads) {
  Result<uint64_t> written = uint64_t{0};
  for (int i = 0; i < 100 && written; ++i) {
    written = write("f" + std::to_string(i), std::string(4 << 20, 'x'));
    std::this_thread::sleep_for(
        std::chrono::milliseconds(110));  // the free space is checked ten times a second
  }
  EXPECT_STATUS(written, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(written.error().os_errno, ENOSPC);
  EXPECT_GT(free_bytes(), 1U << 20);
  EXPECT_TRUE(staged().empty());
  const auto appended = write("f0", "x", ISOGATE_FILE_APPEND);
  EXPECT_STATUS(appended, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_OK(open_other()) << "another one's sandbox";
  EXPECT_OK(remove("f0"));
}

TEST_F(SmallDisk, GivesItsReserveToTheNextSandboxWhenItIsFull) {
  fill();
  ASSERT_EQ(free_bytes(), 0U);
  const auto other = open_other();
  ASSERT_OK(other);
  EXPECT_GT(free_bytes(), 0U);
  EXPECT_OK(Workspace::purge(sandboxes_, kOtherId));
}

// Without inodes, too, so that not even a directory can be created.
TEST_F(SmallDisk, PurgesWithoutRoomForTheTrash) {
  ASSERT_OK(open_other());
  ASSERT_OK(write("d/f", "x", ISOGATE_FILE_PARENTS));
  fill();
  const Fd sandboxes(::open(sandboxes_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  make_room(sandboxes.get());  // the reserve is spent
  ASSERT_EQ(::mount("none", sandboxes_.c_str(), "tmpfs", MS_REMOUNT, "size=64m,nr_inodes=1000"), 0);
  for (int i = 0; ::mkdir((sandboxes_ + "/x" + std::to_string(i)).c_str(), 0700) == 0; ++i) {
  }
  ASSERT_EQ(errno, ENOSPC);
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  EXPECT_FALSE(exists(sandboxes_ + "/" + kId));
  EXPECT_FALSE(exists(sandboxes_ + "/.purged"));
}

TEST_F(SmallDisk, MakesTheTrashAtTheStart) {
  const TrashSweeper sweeper(sandboxes_, [](const std::string& line) { ADD_FAILURE() << line; });
  EXPECT_TRUE(exists(sandboxes_ + "/.purged"));
}

TEST_F(SmallDisk, TakesItsReserveAgainWhenThereIsRoom) {
  for (int i = 0; i < 3; ++i) {
    fill();
    ASSERT_EQ(free_bytes(), 0U) << i;
    ASSERT_OK(open_other());
    EXPECT_GT(free_bytes(), 256U << 10) << i;
    std::filesystem::remove(sandboxes_ + "/all");
    ASSERT_OK(open_other());
    ASSERT_OK(Workspace::purge(sandboxes_, kOtherId));
  }
}

// A tmpfs that is the sandbox's own view, and a cgroup with little memory for a process that writes there.
class SandboxInMemory : public Box {
 protected:
  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "needs root to mount a file system";
    ASSERT_EQ(::mkdir(memory_.c_str(), 0755), 0);
    if (::mount("none", memory_.c_str(), "tmpfs", 0, "size=1g,mode=1777") != 0)
      GTEST_SKIP() << "no mount: " << std::strerror(errno);
    mounted_ = true;
    files().set_view(Fd(::open(memory_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
    groups_ = Cgroups::make("isogate-files", false);
    for (const auto& base : groups_->bases()) {
      auto group = base->make_group("small");
      if (group && set_memory_limit(group->get(), base->version(), 96 << 20).ok()) group_ = std::move(*group);
    }
    if (!group_) GTEST_SKIP() << groups_->missing();
  }
  void TearDown() override {
    if (mounted_) ::umount2(memory_.c_str(), MNT_DETACH);
  }
  Result<void> make_directory(const std::string& path, uint32_t flags = 0) {
    auto request = request_for(path);
    request.scope = ISOGATE_SCOPE_SANDBOX;
    request.flags = flags;
    return files().mkdir(request);
  }
  Result<uint64_t> put(const std::string& path, const std::string& content) {
    return write(path, content, 0, 0, ISOGATE_SCOPE_SANDBOX);
  }
  void occupy(const std::string& name, off_t bytes) const {
    const Fd file(::open((memory_ + name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    EXPECT_EQ(::fallocate(file.get(), 0, 0, bytes), 0);
  }
  void expect_refusals() {
    ASSERT_OK(write_small_file(group_.get(), "cgroup.procs", "0"));
    ASSERT_OK(make_directory("/there"));
    occupy("/most", 80 << 20);
    Result<uint64_t> written = uint64_t{0};
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(110)); };
    for (int i = 0; i < 40 && written; ++i) {
      pause();  // memory is checked ten times a second
      written = put("/f" + std::to_string(i), std::string(1 << 20, 'x'));
    }
    EXPECT_STATUS(written, ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(written.error().os_errno, ENOMEM) << written.error().message;
    occupy("/more", 2 << 20);  // more than the refused one gave back
    pause();
    EXPECT_STATUS(put("/empty", ""), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_STATUS(make_directory("/d"), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_STATUS(make_directory("/e/f", ISOGATE_FILE_PARENTS), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_FALSE(exists(memory_ + "/e"));
    EXPECT_OK(make_directory("/there"));
    EXPECT_FALSE(exists(memory_ + "/empty"));
    struct statfs place {};
    ASSERT_EQ(::statfs(sandboxes_.c_str(), &place), 0);
    if (place.f_type != TMPFS_MAGIC) {
      EXPECT_OK(write("f", "x")) << "the workspace is on a disk";
    }
  }

  const std::string memory_ = top_ + "/memory";
  bool mounted_ = false;
  std::unique_ptr<Cgroups> groups_;
  Fd group_;
};

TEST_F(SandboxInMemory, LeavesTheLastOfTheWritersCgroup) {
  EXPECT_EXIT(
      {
        expect_refusals();
        std::_Exit(HasFailure() ? 1 : 0);
      },
      testing::ExitedWithCode(0), "");
}

TEST(MemoryOfGroup, CountsWhatTheKernelCanDropAsFree) {
  std::string directory = "/tmp/isogate-group-XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  EXPECT_FALSE(memory_of_group(directory, 2));
  spill(directory + "/memory.current", "1000\n");
  EXPECT_EQ(memory_of_group(directory, 2)->all, UINT64_MAX);
  spill(directory + "/memory.max", "max\n");
  EXPECT_EQ(memory_of_group(directory, 2)->free, UINT64_MAX - 1000);
  spill(directory + "/memory.max", "1500\n");
  spill(directory + "/memory.stat", "anon 300\nshmem 500\ninactive_file 150\nactive_file 50\n");
  EXPECT_EQ(memory_of_group(directory, 2)->all, 1500U);
  EXPECT_EQ(memory_of_group(directory, 2)->free, 700U);
  spill(directory + "/memory.usage_in_bytes", "2000\n");
  spill(directory + "/memory.limit_in_bytes", "1500\n");
  spill(directory + "/memory.stat", "inactive_file 9\ntotal_inactive_file 800\ntotal_active_file 100\n");
  EXPECT_EQ(memory_of_group(directory, 1)->free, 400U);
  spill(directory + "/memory.stat", "");
  EXPECT_EQ(memory_of_group(directory, 1)->free, 0U);
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace isogate::test
