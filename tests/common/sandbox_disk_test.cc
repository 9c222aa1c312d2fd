#include "plugins/common/sandbox_disk.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <string>
#include <vector>

#include "runner/files/disk_quota.h"
#include "runner/files/workspace_state.h"
#include "tests/eventually.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"

// A file system of a sandbox's own: made, checked, fitted, mounted, and gone afterwards.
namespace isogate::test {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMebibyte = 1 << 20;

class SandboxDiskTest : public testing::Test {
 protected:
  SandboxDiskTest() : place_("/var/tmp") {}

  void SetUp() override {
    if (!is_root()) GTEST_SKIP() << "only root mounts file systems";
    ASSERT_EQ(::mkdir((place_.path() + "/" + wanted_.id).c_str(), 0711), 0);
  }

  void TearDown() override {
    if (!is_root()) return;
    EXPECT_EQ(mounts(), "") << "it left something mounted";
    EXPECT_TRUE(eventually_no_loops()) << loops();
  }

  void use(WorkspaceFs fs, uint64_t disk_mb) {
    disks_ = std::make_unique<SandboxDisks>(place_.path(), true);
    disks_->set_policy({fs, disk_mb, true, true});
    const auto means = disks_->look(false);
    if (!means.obstacle.empty()) GTEST_SKIP() << means.obstacle;
    if (fs == WorkspaceFs::kLoop && !loop_devices_work()) GTEST_SKIP() << "no loop device is available here";
  }

  Result<std::unique_ptr<SandboxDisk>> open() {
    const auto sandboxes = open_state_directory(place_.path());
    if (!sandboxes) return sandboxes.error();
    const auto sandbox = open_sandbox_directory(sandboxes->get(), wanted_.id);
    if (!sandbox) return sandbox.error();
    return disks_->open(wanted_, sandbox->get());
  }

  Result<std::unique_ptr<SandboxDisk>> to_close() {
    const auto sandboxes = open_state_directory(place_.path());
    if (!sandboxes) return sandboxes.error();
    const auto sandbox = open_sandbox_directory(sandboxes->get(), wanted_.id);
    if (!sandbox) return sandbox.error();
    return disks_->open_to_close(wanted_, sandbox->get());
  }
  // Sweeps, with the sandbox recorded as one of `namespace`.
  void sweep(const std::string& backend) {
    { std::ofstream(at("backend")) << "namespace"; }
    disks_->sweep(backend, [](const std::string&) {});
  }

  [[nodiscard]] std::string at(const std::string& name) const {
    return place_.path() + "/" + wanted_.id + "/" + name;
  }
  [[nodiscard]] std::string mounts() const {
    return run_program(
               {"sh", "-c", "grep -o '" + place_.path() + "[^ ]*' /proc/self/mountinfo | sort -u; true"})
        .out;
  }
  [[nodiscard]] std::string loops() const {
    return run_program(
               {"sh", "-c",
                "grep -l '" + place_.path() + "' /sys/block/loop*/loop/backing_file 2>/dev/null; true"})
        .out;
  }
  [[nodiscard]] bool eventually_no_loops() const {
    return eventually(10, [this] { return loops().empty(); });
  }
  static bool loop_devices_work() {
    const Fd control(::open("/dev/loop-control", O_RDWR | O_CLOEXEC));
    return static_cast<bool>(control);
  }
  // How much could be written, in MiB.
  static uint64_t fill(const SandboxDisk& disk, uint64_t most_mb, int& error) {
    const Fd file(::openat(disk.home(), "full", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    const std::vector<char> chunk(kMebibyte, 'x');
    uint64_t written = 0;
    error = 0;
    while (error == 0 && written < most_mb * kMebibyte) {
      const ssize_t done = ::write(file.get(), chunk.data(), chunk.size());
      if (done < 0) error = errno;
      written += done < 0 ? 0 : static_cast<uint64_t>(done);
    }
    written /= kMebibyte;
    return written;
  }

  const TemporaryDirectory place_;
  SandboxDisks::Wanted wanted_{.id = "isg-aaaaaaaaaaaaaaaaaaaaaaaaaa", .identity = {}};
  std::unique_ptr<SandboxDisks> disks_;
};

TEST_F(SandboxDiskTest, ALoopFileSystemIsBoundedAndKeepsItsFiles) {
  use(WorkspaceFs::kLoop, 32);
  if (IsSkipped()) return;
  {
    auto disk = open();
    ASSERT_TRUE(disk.ok()) << disk.error().message;
    EXPECT_EQ((*disk)->enforced_bytes(), 32 * kMebibyte);
    int error = 0;
    const uint64_t written = fill(**disk, 100, error);
    EXPECT_EQ(error, ENOSPC);
    EXPECT_GT(written, 16u);
    EXPECT_LE(written, 32u);
    const auto use = (*disk)->quota()->use();
    ASSERT_TRUE(use.ok());
    EXPECT_TRUE(use->enforced);
    EXPECT_GE(use->used_bytes, written * kMebibyte);
    EXPECT_LE(use->limit_bytes, 32 * kMebibyte);
    ASSERT_EQ(::unlinkat((*disk)->home(), "full", 0), 0);
    const Fd kept(::openat((*disk)->home(), "kept", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ASSERT_EQ(::write(kept.get(), "here", 4), 4);
  }
  EXPECT_EQ(mounts(), "");
  struct stat image {};
  ASSERT_EQ(::stat(at("disk.img").c_str(), &image), 0);
  EXPECT_EQ(static_cast<uint64_t>(image.st_size), 32 * kMebibyte);
  EXPECT_LT(static_cast<uint64_t>(image.st_blocks) * 512, 16 * kMebibyte)
      << "what was removed takes no room below";
  auto again = open();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(::faccessat((*again)->home(), "kept", F_OK, 0), 0);
}

TEST_F(SandboxDiskTest, ALoopFileSystemGrowsAndShrinksWithItsSetting) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  ASSERT_TRUE(open().ok());
  use(WorkspaceFs::kLoop, 48);
  {
    auto grown = open();
    ASSERT_TRUE(grown.ok()) << grown.error().message;
    int error = 0;
    EXPECT_GT(fill(**grown, 30, error), 25u);
  }
  use(WorkspaceFs::kLoop, 16);
  const auto full = open();
  ASSERT_FALSE(full.ok()) << "its files do not fit";
  EXPECT_EQ(full.error().status, ISOGATE_UNSUPPORTED);
  EXPECT_THAT(full.error().message, HasSubstr("disk_mb"));
  use(WorkspaceFs::kLoop, 48);
  {
    auto same = open();
    ASSERT_TRUE(same.ok()) << same.error().message;
    ASSERT_EQ(::unlinkat((*same)->home(), "full", 0), 0);
  }
  use(WorkspaceFs::kLoop, 16);
  auto shrunk = open();
  ASSERT_TRUE(shrunk.ok()) << shrunk.error().message;
  int error = 0;
  EXPECT_LE(fill(**shrunk, 30, error), 16u);
  EXPECT_EQ(error, ENOSPC);
}

TEST_F(SandboxDiskTest, WhatADeadHostLeftIsMountedAgain) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  const pid_t child = ::fork();
  if (child == 0) {
    auto disk = open();
    const bool made = disk.ok() && ::mkdirat((*disk)->home(), "kept", 0700) == 0;
    if (disk) ::fsync((*disk)->home());
    ::_exit(made ? 0 : 1);  // as if it were killed
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  EXPECT_NE(mounts(), "");
  {
    auto disk = open();
    ASSERT_TRUE(disk.ok()) << disk.error().message;
    EXPECT_EQ(::faccessat((*disk)->home(), "kept", F_OK, 0), 0);
    sweep("namespace");
    EXPECT_NE(mounts(), "") << "an open disk is no leftover";
  }
  const pid_t another = ::fork();
  if (another == 0) {
    auto disk = open();
    ::_exit(disk.ok() ? 0 : 1);
  }
  ASSERT_EQ(::waitpid(another, &status, 0), another);
  sweep("docker");
  EXPECT_NE(mounts(), "") << "it is another backend's, whose containers may use it";
  sweep("namespace");
  EXPECT_EQ(mounts(), "");
}

TEST_F(SandboxDiskTest, WhatIsFoundMountedStaysSoUntilItIsHeld) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  wanted_.keep = true;
  (*open())->leave();
  EXPECT_NE(mounts(), "");
  ASSERT_TRUE(open().ok());
  EXPECT_NE(mounts(), "") << "a container may use it, and nobody has said that it does not";
  {
    auto disk = open();
    ASSERT_TRUE(disk.ok());
    (*disk)->hold();
  }
  EXPECT_EQ(mounts(), "");
}

// e2fsprogs leave out a last group of blocks that has no room for its own tables.
TEST_F(SandboxDiskTest, OneOfAnySizeIsFoundMounted) {
  use(WorkspaceFs::kLoop, 516);
  if (IsSkipped()) return;
  wanted_.keep = wanted_.locked = true;
  auto before = open();
  ASSERT_TRUE(before.ok()) << before.error().message;
  (*before)->leave();  // a container uses it
  auto again = open();
  ASSERT_TRUE(again.ok()) << again.error().message;
  (*again)->hold();
}

// Of a size that is not configured any more, damaged, of another kind, mounted or not.
TEST_F(SandboxDiskTest, WhatCannotBeOpenedCanBeEnded) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  wanted_.keep = true;
  (*open())->leave();
  use(WorkspaceFs::kTmpfs, 16);
  EXPECT_FALSE(open().ok());
  auto disk = to_close();
  ASSERT_TRUE(disk.ok()) << disk.error().message;
  EXPECT_EQ((*disk)->enforced_bytes(), 0u);
  EXPECT_FALSE((*disk)->use().ok()) << "its use is not known";
  EXPECT_TRUE((*disk)->release().ok());
  EXPECT_EQ(mounts(), "");
  disk->reset();
  disk = to_close();
  ASSERT_TRUE(disk.ok()) << disk.error().message;
  EXPECT_TRUE((*disk)->release().ok());
}

// As after a crash between the two steps of a growth.
TEST_F(SandboxDiskTest, AGrowthThatWasInterruptedIsMadeUpFor) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  ASSERT_TRUE(open().ok());
  ASSERT_TRUE(eventually_no_loops());
  ASSERT_EQ(::truncate(at("disk.img").c_str(), 32 * kMebibyte), 0);
  use(WorkspaceFs::kLoop, 32);
  auto disk = open();
  ASSERT_TRUE(disk.ok()) << disk.error().message;
  int error = 0;
  EXPECT_GT(fill(**disk, 100, error), 18u);
}

TEST_F(SandboxDiskTest, ADamagedImageIsRefusedAndSaysHowToRepairIt) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  ASSERT_TRUE(open().ok());
  ASSERT_TRUE(eventually_no_loops());
  {
    const Fd image(::open(at("disk.img").c_str(), O_WRONLY | O_CLOEXEC));
    const std::vector<char> zeros(16 * kMebibyte, '\0');
    ASSERT_EQ(::write(image.get(), zeros.data(), zeros.size()), static_cast<ssize_t>(zeros.size()));
  }
  const auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_IO);
  EXPECT_THAT(refused.error().message, HasSubstr("e2fsck"));
  EXPECT_EQ(::access(at("disk.img").c_str(), F_OK), 0) << "it is somebody's files";
}

TEST_F(SandboxDiskTest, OneThatCannotBeMadeLeavesNothing) {
  use(WorkspaceFs::kLoop, 16);
  if (IsSkipped()) return;
  wanted_.asked_bytes = uint64_t{1} << 62;  // no file can be so large
  const auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(::access(at("disk.img").c_str(), F_OK), -1);
  EXPECT_EQ(::access(at("disk.new").c_str(), F_OK), -1);
  wanted_.asked_bytes = 0;
  EXPECT_TRUE(open().ok());
}

TEST_F(SandboxDiskTest, OneThatIsGoneIsLost) {
  for (const WorkspaceFs fs : {WorkspaceFs::kLoop, WorkspaceFs::kTmpfs}) {
    use(fs, 16);
    if (IsSkipped()) return;
    wanted_.attach_only = true;
    const auto lost = open();
    ASSERT_FALSE(lost.ok());
    EXPECT_EQ(lost.error().status, ISOGATE_SANDBOX_LOST);
  }
}

TEST_F(SandboxDiskTest, AnotherKindDoesNotHideTheFiles) {
  ASSERT_EQ(::mkdir(at("workspace").c_str(), 0700), 0);
  use(WorkspaceFs::kTmpfs, 16);
  const auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_UNSUPPORTED);
  EXPECT_THAT(refused.error().message, HasSubstr("workspace_fs: directory"));
}

TEST_F(SandboxDiskTest, ATmpfsStaysUntilItIsPurged) {
  use(WorkspaceFs::kTmpfs, 16);
  {
    auto disk = open();
    ASSERT_TRUE(disk.ok()) << disk.error().message;
    int error = 0;
    EXPECT_EQ(fill(**disk, 100, error), 16u);
    EXPECT_EQ(error, ENOSPC);
  }
  use(WorkspaceFs::kTmpfs, 8);
  const auto small = open();
  ASSERT_FALSE(small.ok()) << "its files do not fit";
  EXPECT_THAT(small.error().message, HasSubstr("disk_mb"));
  use(WorkspaceFs::kTmpfs, 32);
  wanted_.attach_only = true;
  auto again = open();
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ((*again)->quota()->use()->limit_bytes, 32 * kMebibyte);
  EXPECT_EQ((*again)->quota()->use()->used_bytes, 16 * kMebibyte);
  EXPECT_TRUE((*again)->release().ok());
  EXPECT_EQ(mounts(), "");
}

TEST_F(SandboxDiskTest, WithoutAQuotaItIsAdvisoryAndOnlyWhereThatIsEnough) {
  disks_ = std::make_unique<SandboxDisks>(place_.path(), true);
  disks_->set_policy({WorkspaceFs::kDirectory, 16, true, true});
  if (disks_->look(false).enforced) GTEST_SKIP() << "this file system has project quotas";
  EXPECT_THAT(disks_->look(false).obstacle, HasSubstr("workspace_fs: loop"));
  EXPECT_EQ(disks_->look(true).obstacle, "");
  const auto refused = open();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().status, ISOGATE_UNSUPPORTED);
  EXPECT_THAT(refused.error().message, HasSubstr("workspace_fs: loop"));
  wanted_.best_effort = true;
  auto accepted = open();
  ASSERT_TRUE(accepted.ok()) << accepted.error().message;
  EXPECT_EQ((*accepted)->enforced_bytes(), 0u);
  wanted_.best_effort = false;
  disks_->set_policy({WorkspaceFs::kDirectory, 16, false, true});
  EXPECT_EQ(disks_->look(false).obstacle, "") << "a default limit is no obstacle";
  EXPECT_THAT(disks_->look(false).words, HasSubstr("advisory"));
  auto by_default = open();
  ASSERT_TRUE(by_default.ok()) << by_default.error().message;
  const Fd file(::openat((*by_default)->home(), "file", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const std::vector<char> chunk(kMebibyte, 'x');
  ASSERT_EQ(::write(file.get(), chunk.data(), chunk.size()), static_cast<ssize_t>(chunk.size()));
  ASSERT_EQ(::fsync(file.get()), 0);
  const auto& quota = (*by_default)->quota();
  quota->changed();
  for (int looks = 0; looks < 200 && !quota->use()->exact; ++looks) ::usleep(20'000);
  EXPECT_GE(quota->use()->used_bytes, kMebibyte);
  EXPECT_LT(quota->use()->used_bytes, 2 * kMebibyte);
  EXPECT_FALSE(quota->use()->enforced);
  ASSERT_EQ(::write(file.get(), chunk.data(), chunk.size()), static_cast<ssize_t>(chunk.size()));
  ASSERT_EQ(::fsync(file.get()), 0);
  quota->changed();
  for (int looks = 0; looks < 200 && !quota->use()->exact; ++looks) ::usleep(20'000);
  EXPECT_GE(quota->use()->used_bytes, 2 * kMebibyte) << "counted again";
  quota->wrote(static_cast<int64_t>(3 * kMebibyte), 1);
  EXPECT_GE(quota->use()->used_bytes, 5 * kMebibyte);
}

TEST_F(SandboxDiskTest, AFileSystemWithoutProjectQuotasIsNotBlamedOnTheKernel) {
  disks_ = std::make_unique<SandboxDisks>(place_.path(), true);
  disks_->set_policy({WorkspaceFs::kDirectory, 16, true, true});
  if (disks_->look(false).enforced) GTEST_SKIP() << "this file system has project quotas";
  constexpr long kQuotactlFd = 443;
  const bool kernel_lacks_them = ::syscall(kQuotactlFd, -1, 0, 0, nullptr) != 0 && errno == ENOSYS;
  const std::string words = disks_->look(false).words;
  EXPECT_EQ(words.find("this kernel has no project quotas") != std::string::npos, kernel_lacks_them) << words;
}

TEST_F(SandboxDiskTest, AStartWarnsWhereTheRecordsShareTheFileSystem) {
  const auto warning = [&](WorkspaceFs fs, const std::string& records) {
    const SandboxDisks disks(place_.path(), true, {fs, 16, false, false});
    return disks.warning(records);
  };
  for (const WorkspaceFs fs : {WorkspaceFs::kLoop, WorkspaceFs::kDirectory}) {
    EXPECT_THAT(warning(fs, place_.path()), HasSubstr("`workdir`"));
    EXPECT_THAT(warning(fs, place_.path()), testing::Not(HasSubstr("write workspace_fs")));
    EXPECT_EQ(warning(fs, "/proc"), "");
  }
  EXPECT_EQ(warning(WorkspaceFs::kTmpfs, place_.path()), "");
}

// limits.disk_mb may replace the backend's own number, which it does not know.
TEST_F(SandboxDiskTest, AWarningAboutAllSandboxesNamesNoSize) {
  for (const WorkspaceFs fs : {WorkspaceFs::kDirectory, WorkspaceFs::kLoop, WorkspaceFs::kTmpfs}) {
    const SandboxDisks disks(place_.path(), true, {fs, 1234, false, false});
    EXPECT_THAT(disks.look(true).words, testing::Not(HasSubstr("1234")));
    EXPECT_THAT(disks.look(true).words, HasSubstr("disk: a limit for each sandbox"));
  }
}

// What was there before the limit counts, and so do concurrent writes.
TEST(DiskCounterTest, AWriteIsRefusedByWhatIsThereAndWhatIsUnderWay) {
  const TemporaryDirectory place("/var/tmp");
  { std::ofstream(place.path() + "/there") << std::string(6 * kMebibyte, 'x'); }
  ::sync();
  DiskCounter counter;
  const auto quota = counter.quota(Fd(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                                   8 * kMebibyte, false);
  EXPECT_GE(quota->known()->used_bytes, 6 * kMebibyte) << "counted before the first write";
  DiskHold one(quota.get());
  EXPECT_TRUE(one.grow_to(kMebibyte));
  {
    DiskHold two(quota.get());
    EXPECT_TRUE(two.grow_to(kMebibyte / 2));
    EXPECT_EQ(two.grow_to(kMebibyte + 1).error().os_errno, EDQUOT) << "both together do not fit";
  }
  EXPECT_TRUE(one.grow_to(kMebibyte + kMebibyte / 2)) << "what the other one held is free again";
}

// The file of a write is counted once, however much of it is there when all is counted again.
TEST(DiskCounterTest, WhatIsUnderWayIsNeitherForgottenNorCountedTwice) {
  const TemporaryDirectory place("/var/tmp");
  { std::ofstream(place.path() + "/there") << std::string(5 * kMebibyte, 'x'); }
  const Fd empty(::open((place.path() + "/empty").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  const Fd full(::open((place.path() + "/full").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
  DiskCounter counter;
  const auto quota = counter.quota(Fd(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                                   8 * kMebibyte, false);
  ASSERT_TRUE(quota->known());
  DiskHold one(quota.get()), two(quota.get()), three(quota.get());
  ASSERT_TRUE(one.cover(empty.get()));
  ASSERT_TRUE(two.cover(full.get()));
  EXPECT_TRUE(one.grow_to(kMebibyte));
  EXPECT_TRUE(two.grow_to(kMebibyte));
  ASSERT_EQ(::ftruncate(full.get(), kMebibyte), 0);
  ASSERT_EQ(::posix_fallocate(full.get(), 0, kMebibyte), 0);
  for (int counts = 0; counts < 2; ++counts) {
    quota->changed();
    EXPECT_EQ(three.grow_to(kMebibyte + 1).error().os_errno, EDQUOT);
  }
  EXPECT_TRUE(three.grow_to(kMebibyte - kMebibyte / 4));
  two.wrote(kMebibyte, 1);
  quota->changed();
  EXPECT_EQ(DiskHold(quota.get()).grow_to(kMebibyte).error().os_errno, EDQUOT);
  EXPECT_TRUE(three.grow_to(kMebibyte - kMebibyte / 8));
}

TEST(DiskCounterTest, AFileTooManyIsRefused) {
  const TemporaryDirectory place("/var/tmp");
  DiskCounter counter;
  const auto quota = counter.quota(Fd(::open(place.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                                   3 * kBytesPerInode, true);
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(DiskHold(quota.get()).grow_to(1));
    std::ofstream(place.path() + "/" + std::to_string(i)) << "x";
    quota->wrote(1, 1);
  }
  EXPECT_EQ(DiskHold(quota.get()).grow_to(1).error().os_errno, EDQUOT);
}

// On xfs an exceeded project quota is ENOSPC.
const auto kFull = testing::AnyOf(HasSubstr("quota"), HasSubstr("No space left"));

// On a file system of its own with project quotas; the kernel must support them.
class ProjectQuotaTest : public SandboxDiskTest, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    SandboxDiskTest::SetUp();
    if (IsSkipped()) return;
    const std::string image = place_.path() + "/image", disk = this->disk();
    const ProgramResult made = run_program({"sh", "-c",
                                            "PATH=$PATH:/usr/sbin:/sbin; truncate -s 320M " + image + " && " +
                                                std::string(GetParam()) + " " + image + " && mkdir " + disk +
                                                " && mount -o loop,prjquota " + image + " " + disk +
                                                " && mkdir -m 711 " + disk + "/" + wanted_.id});
    if (made.exit_code != 0) GTEST_SKIP() << "no project quotas are available here: " << made.err;
    mounted_ = true;
    disks_ = std::make_unique<SandboxDisks>(disk, true);
    disks_->set_policy({WorkspaceFs::kDirectory, 16, true, true});
    wanted_.identity = {true, 61900, 61900};
    ASSERT_TRUE(disks_->look(false).enforced) << disks_->look(false).words;
  }
  void TearDown() override {
    if (mounted_) {
      EXPECT_EQ(run_program({"umount", disk()}).exit_code, 0);
    }
    SandboxDiskTest::TearDown();
  }
  [[nodiscard]] std::string disk() const { return place_.path() + "/mounted"; }
  [[nodiscard]] std::string sandbox() const { return disk() + "/" + wanted_.id; }
  [[nodiscard]] std::string project() const { return read_whole(sandbox() + "/project"); }

  Result<std::unique_ptr<SandboxDisk>> open_there() {
    const auto sandboxes = open_state_directory(disk());
    if (!sandboxes) return sandboxes.error();
    const auto sandbox = open_sandbox_directory(sandboxes->get(), wanted_.id);
    if (!sandbox) return sandbox.error();
    return disks_->open(wanted_, sandbox->get());
  }
  // As the sandbox's user, without root's rights: the errno that ends this shell's loop of `write`.
  static std::string as_user(const std::string& script) {
    return run_program({"setpriv", "--reuid=61900", "--regid=61900", "--clear-groups", "--bounding-set=-all",
                        "--inh-caps=-all", "sh", "-c", script})
        .err;
  }

 private:
  bool mounted_ = false;
};

TEST_P(ProjectQuotaTest, HoldsInBytesAndFilesAndGoesWithTheSandbox) {
  const std::string files = sandbox() + "/workspace";
  ASSERT_EQ(::mkdir(files.c_str(), 0700), 0);
  ASSERT_EQ(::chown(files.c_str(), 61900, 61900), 0);
  auto opened = open_there();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->enforced_bytes(), 16 * kMebibyte);
  EXPECT_THAT(as_user("cd " + files + " && head -c 40M /dev/zero > big"), kFull);
  const auto use = (*opened)->quota()->use();
  ASSERT_TRUE(use.ok()) << use.error().message;
  EXPECT_GT(use->used_bytes, 14 * kMebibyte);
  EXPECT_LE(use->used_bytes, 16 * kMebibyte);
  EXPECT_EQ(use->limit_bytes, 16 * kMebibyte);
  EXPECT_EQ(use->limit_files, 16 * kMebibyte / kBytesPerInode);
  EXPECT_EQ(as_user("cd " + files + " && : > big && rm big && head -c 4M /dev/zero > fits"), "");
  EXPECT_THAT(as_user("cd " + files + " && i=0; while [ $i -lt 3000 ] && : > f$i; do i=$((i+1)); done"),
              kFull);
  EXPECT_EQ(run_program({"sh", "-c", "head -c 30M /dev/zero > " + disk() + "/of-others"}).exit_code, 0);
  ASSERT_TRUE((*opened)->release().ok());
  EXPECT_EQ(as_user("cd " + files + " && head -c 20M /dev/zero > more"), "") << "its limit is gone";
}

// As a backend host, which lacks the capability to exceed a quota.
TEST_P(ProjectQuotaTest, AFullSandboxTakesTheRecordsOfItsNextOpen) {
  const std::string files = sandbox() + "/workspace";
  ASSERT_EQ(::mkdir(files.c_str(), 0700), 0);
  ASSERT_EQ(::chown(files.c_str(), 61900, 61900), 0);
  ASSERT_TRUE(open_there().ok());
  EXPECT_THAT(as_user("cd " + files + " && head -c 40M /dev/zero > big"), kFull);
  const ProgramResult recorded =
      run_program({"setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", "sh", "-c",
                   "echo new > " + sandbox() + "/record && mkdir " + sandbox() + "/beside && echo new > " +
                       sandbox() + "/beside/record"});
  EXPECT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_TRUE(open_there().ok());
  EXPECT_THAT(as_user("cd " + files + " && head -c 1M /dev/zero > more"), kFull) << "it is bounded still";
}

TEST_P(ProjectQuotaTest, OneOfAnEarlierGatewayTakesThemToo) {
  ASSERT_TRUE(open_there().ok());
  const std::string identity = sandbox() + "/identity";
  ASSERT_EQ(::mkdir(identity.c_str(), 0755), 0);
  std::ofstream(identity + "/passwd") << "old";
  const auto project_of = [](const std::string& path) {
    const ProgramResult listed = run_program({"lsattr", "-pd", path});
    EXPECT_EQ(listed.exit_code, 0) << listed.err;
    return static_cast<uint32_t>(std::stoul(listed.out));
  };
  const auto number = static_cast<uint32_t>(std::stoul(project()));
  const Fd all(::open(sandbox().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_TRUE(assign_project(all.get(), number).ok());  // as it was then
  ASSERT_EQ(project_of(identity + "/passwd"), number);
  ASSERT_TRUE(open_there().ok());
  EXPECT_EQ(project_of(identity), 0u);
  EXPECT_EQ(project_of(identity + "/passwd"), 0u);
}

TEST_P(ProjectQuotaTest, CountsWhatWasThereBefore) {
  const std::string files = sandbox() + "/workspace";
  ASSERT_EQ(::mkdir(files.c_str(), 0700), 0);
  ASSERT_EQ(run_program({"sh", "-c",
                         "cd " + files +
                             " && mkdir -p a/b && head -c 6M /dev/zero > a/b/old && mkfifo p && "
                             "ln -s / l && chown -R 61900:61900 . && sync"})
                .exit_code,
            0);
  auto opened = open_there();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_GE((*opened)->quota()->use()->used_bytes, 6 * kMebibyte);
  EXPECT_THAT(as_user("cd " + files + "/a/b && head -c 12M /dev/zero > new"), kFull);
}

TEST_P(ProjectQuotaTest, ANewSandboxDoesNotPayForWhatAPurgeHasNotRemovedYet) {
  ASSERT_TRUE(open_there().ok());
  const std::string before = project();
  EXPECT_NE(before, "");
  EXPECT_EQ(open_there().ok() ? project() : "", before) << "one that is there keeps its project";
  ASSERT_EQ(run_program({"sh", "-c",
                         "cd " + disk() + " && head -c 8M /dev/zero > " + wanted_.id + "/staging/old && mv " +
                             wanted_.id + " removed && mkdir -m 711 " + wanted_.id})
                .exit_code,
            0);
  auto opened = open_there();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_NE(project(), before);
  EXPECT_LT((*opened)->quota()->use()->used_bytes, kMebibyte);
}

TEST_P(ProjectQuotaTest, IsOnlyAdvisoryWhereAProgramCanChangeTheProject) {
  disks_->set_policy({WorkspaceFs::kDirectory, 16, true, false});
  EXPECT_FALSE(disks_->look(false).enforced);
  EXPECT_THAT(disks_->look(false).obstacle, HasSubstr("advisory"));
  wanted_.best_effort = true;
  auto opened = open_there();
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->enforced_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(On, ProjectQuotaTest,
                         testing::Values("mkfs.ext4 -q -F -O quota,project -E quotatype=prjquota",
                                         "mkfs.xfs -q -f"),
                         [](const auto& each) {
                           return std::string(each.param).substr(5, std::string(each.param).find(' ') - 5);
                         });

}  // namespace
}  // namespace isogate::test
