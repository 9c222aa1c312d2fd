#include "runner/files/workspace_room.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

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

}  // namespace
}  // namespace isogate::test
