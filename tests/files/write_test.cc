#include <fcntl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "runner/files/workspace_transfer.h"
#include "tests/eventually.h"
#include "tests/files/box.h"

namespace isogate::test {
namespace {

using namespace std::chrono_literals;

class Writes : public Box {
 protected:
  // Sends `sent`, fires the cancellation as a truncated body does, and only then ends the stream.
  Result<uint64_t> truncated(const std::string& path, const std::string& sent, uint32_t flags = 0) {
    auto pipe = make_pipe();
    auto cancel = make_event();
    auto request = request_for(path);
    request.fd = pipe->read.get();
    request.flags = flags;
    Result<uint64_t> result = Error{};
    std::thread writer([&] { result = files().write(request, cancel->get()); });
    EXPECT_EQ(::write(pipe->write.get(), sent.data(), sent.size()), static_cast<ssize_t>(sent.size()));
    std::this_thread::sleep_for(50ms);
    signal_event(cancel->get());
    pipe->write.reset();
    writer.join();
    return result;
  }
  [[nodiscard]] struct stat info(const std::string& name) const {
    struct stat result {};
    EXPECT_EQ(::lstat(inside(name).c_str(), &result), 0) << name;
    return result;
  }
};

TEST_F(Writes, MakeAFileOfTheSandboxsOwn) {
  ASSERT_EQ(*write("f", "hello"), 5U);
  EXPECT_EQ(slurp(inside("f")), "hello");
  EXPECT_EQ(info("f").st_mode & 07777, 0644U);
  EXPECT_EQ(info("f").st_uid, is_root() ? tenant().uid : ::geteuid());
  EXPECT_EQ(info("f").st_gid, is_root() ? tenant().gid : ::getegid());
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, KeepTheModeOrTakeTheOneGiven) {
  plant("f", "x", 0751);
  ASSERT_OK(write("f", "y"));
  EXPECT_EQ(info("f").st_mode & 07777, 0751U);
  ASSERT_OK(write("f", "y", ISOGATE_FILE_MODE_GIVEN, 0600));
  EXPECT_EQ(info("f").st_mode & 07777, 0600U);
  ASSERT_OK(write("g", "y", ISOGATE_FILE_MODE_GIVEN, 0777));
  EXPECT_EQ(info("g").st_mode & 07777, 0777U);
  ASSERT_OK(write("h", "y", ISOGATE_FILE_MODE_GIVEN, 0));
  EXPECT_EQ(info("h").st_mode & 07777, 0U);
}

TEST_F(Writes, NeverKeepSetuidOrAttributes) {
  plant("f", "x");
  ASSERT_EQ(::chmod(inside("f").c_str(), 06755), 0);
  const bool attributes = ::setxattr(inside("f").c_str(), "user.note", "x", 1, 0) == 0;
  ASSERT_OK(write("f", "y"));
  EXPECT_EQ(info("f").st_mode & 07777, 0755U);
  char value[8];
  EXPECT_EQ(::getxattr(inside("f").c_str(), "user.note", value, sizeof value), -1);
  if (!attributes) GTEST_SKIP() << "this file system has no user attributes";
}

TEST_F(Writes, OverAReadOnlyFileAreRefusedUnlessTheyReplace) {
  for (const int mode : {0444, 0400, 0555}) {
    plant("f", "old", mode);
    for (const uint32_t flags : {0U, ISOGATE_FILE_APPEND, ISOGATE_FILE_DURABLE, ISOGATE_FILE_MODE_GIVEN}) {
      const auto written = write("f", "new", flags, 0644);
      EXPECT_STATUS(written, ISOGATE_PERMISSION_DENIED);
      EXPECT_NE(written.error().message.find("`replace=true`"), std::string::npos) << written.error().message;
    }
    EXPECT_STATUS(write("f", "new", ISOGATE_FILE_EXCLUSIVE), ISOGATE_ALREADY_EXISTS);
    ASSERT_OK(write("g", "moved"));
    EXPECT_STATUS(move("g", "f"), ISOGATE_PERMISSION_DENIED);
    EXPECT_EQ(slurp(inside("f")), "old");
    ASSERT_OK(write("f", "new", ISOGATE_FILE_REPLACE));
    EXPECT_EQ(info("f").st_mode & 07777, static_cast<mode_t>(mode));
    EXPECT_EQ(slurp(inside("f")), "new");
    ASSERT_OK(move("g", "f", ISOGATE_FILE_REPLACE));
    EXPECT_EQ(slurp(inside("f")), "moved");
    ASSERT_OK(remove("f"));
  }
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, OverAFileThatABodyMakesReadOnlyAreRefusedAtTheirCommit) {
  plant("f", "old");
  auto pipe = make_pipe();
  auto request = request_for("f");
  request.fd = pipe->read.get();
  Result<uint64_t> written = Error{};
  std::thread writer([&] { written = files().write(request, -1); });
  EXPECT_EQ(::write(pipe->write.get(), "new", 3), 3);
  while (staged().empty()) std::this_thread::sleep_for(1ms);
  ASSERT_EQ(::chmod(inside("f").c_str(), 0444), 0);
  pipe->write.reset();
  writer.join();
  EXPECT_STATUS(written, ISOGATE_PERMISSION_DENIED);
  EXPECT_EQ(slurp(inside("f")), "old");
}

TEST(ReadOnly, ThePermissionBitsOfTheClassDecide) {
  const Identity owner{true, 1000, 1000}, member{true, 1001, 1000}, other{true, 1001, 1001}, root{true, 0, 0};
  struct stat file {};
  file.st_uid = 1000;
  file.st_gid = 1000;
  const auto writers = [&](mode_t mode) {
    file.st_mode = mode;
    std::string who;
    if (mode_lets_write(file, owner)) who += 'u';
    if (mode_lets_write(file, member)) who += 'g';
    if (mode_lets_write(file, other)) who += 'o';
    if (mode_lets_write(file, root)) who += 'r';
    return who;
  };
  EXPECT_EQ(writers(0644), "ur");
  EXPECT_EQ(writers(0444), "");
  EXPECT_EQ(writers(0464), "g");
  EXPECT_EQ(writers(0446), "o");
  EXPECT_EQ(writers(0666), "ugor");
}

TEST_F(Writes, BreakHardLinksInsteadOfWritingThroughThem) {
  plant("f", "shared");
  ASSERT_EQ(::link(inside("f").c_str(), (outside_ + "/f").c_str()), 0);
  ASSERT_OK(write("f", "mine"));
  ASSERT_OK(write("f", "more", ISOGATE_FILE_APPEND));
  EXPECT_EQ(slurp(inside("f")), "minemore");
  EXPECT_EQ(slurp(outside_ + "/f"), "shared");
}

TEST_F(Writes, OverARunningProgramSucceed) {
  plant("sleep", slurp("/bin/sleep"), 0755);
  const pid_t child = ::fork();
  if (child == 0) {
    ::execl(inside("sleep").c_str(), "sleep", "30", nullptr);
    ::_exit(127);
  }
  const std::string program = "/proc/" + std::to_string(child) + "/exe";
  EXPECT_TRUE(eventually(20, [&] {
    std::error_code error;
    return std::filesystem::equivalent(program, inside("sleep"), error);
  }));
  EXPECT_OK(write("sleep", "new"));
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the program was not running";
  EXPECT_EQ(slurp(inside("sleep")), "new");
}

TEST_F(Writes, ToWhatIsNoFileNameAreDefinedErrors) {
  ASSERT_OK(mkdir("d"));
  EXPECT_STATUS(write("d", "x"), ISOGATE_IS_DIRECTORY);
  for (const char* path : {"d/", "new/", ".", "", "/", "d/.", "/workspace", "/workspace/"})
    EXPECT_STATUS(write(path, "x"), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(write("absent/f", "x"), ISOGATE_NOT_FOUND);
  ASSERT_OK(write("f", "x"));
  EXPECT_STATUS(write("f/g", "x"), ISOGATE_NOT_FOUND);
  EXPECT_STATUS(write("f/g/h", "x", ISOGATE_FILE_PARENTS), ISOGATE_NOT_FOUND);
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, MakeMissingParents) {
  ASSERT_OK(write("a/b/c/f", "x", ISOGATE_FILE_PARENTS));
  EXPECT_EQ(*read("a/b/c/f"), "x");
  EXPECT_EQ(info("a/b").st_mode & 07777, 0755U);
  EXPECT_EQ(info("a/b/c").st_uid, is_root() ? tenant().uid : ::geteuid());
  ASSERT_OK(write("a/b/d/f", "y", ISOGATE_FILE_PARENTS | ISOGATE_FILE_DURABLE));
}

TEST_F(Writes, AppendAddsAtTheEnd) {
  ASSERT_EQ(*write("f", "one", ISOGATE_FILE_APPEND), 3U);
  ASSERT_EQ(*write("f", "two", ISOGATE_FILE_APPEND), 3U);
  EXPECT_EQ(*read("f"), "onetwo");
  ASSERT_OK(write("f", "", ISOGATE_FILE_APPEND));
  EXPECT_EQ(*read("f"), "onetwo");
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, AppendKeepsHoles) {
  plant("f", "head");
  ASSERT_EQ(::truncate(inside("f").c_str(), 1LL << 33), 0);
  ASSERT_OK(write("f", "tail", ISOGATE_FILE_APPEND));
  EXPECT_EQ(stat("f")->size, (1ULL << 33) + 4);
  EXPECT_EQ(*read("f", 0, 6), std::string("head\0\0", 6));
  EXPECT_EQ(*read("f", (1ULL << 33) - 2), std::string("\0\0tail", 6));
  EXPECT_LT(info("f").st_blocks, 4096);
}

TEST_F(Writes, ConcurrentAppendsLoseNothing) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) EXPECT_OK(write("log", "0123456789\n", ISOGATE_FILE_APPEND));
    });
  for (auto& thread : threads) thread.join();
  const std::string log = *read("log");
  ASSERT_EQ(log.size(), 8U * 50 * 11);
  for (size_t i = 0; i < log.size(); i += 11) ASSERT_EQ(log.substr(i, 11), "0123456789\n");
}

TEST_F(Writes, AReaderSeesTheOldOrTheNewFileWhole) {
  const std::string a(200000, 'a'), b(200000, 'b');
  ASSERT_OK(write("f", a));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int i = 0; i < 200; ++i) EXPECT_OK(write("f", i % 2 == 0 ? b : a));
    stop = true;
  });
  while (!stop) {
    const auto content = read("f");
    ASSERT_OK(content);
    ASSERT_TRUE(*content == a || *content == b) << "torn";
  }
  writer.join();
}

TEST_F(Writes, ExclusiveRefusesWhatIsThere) {
  ASSERT_OK(write("f", "one", ISOGATE_FILE_EXCLUSIVE));
  EXPECT_STATUS(write("f", "two", ISOGATE_FILE_EXCLUSIVE), ISOGATE_ALREADY_EXISTS);
  EXPECT_EQ(*read("f"), "one");
  std::atomic<int> won{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] { won += write("g", "x", ISOGATE_FILE_EXCLUSIVE).ok() ? 1 : 0; });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(won, 1);
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, DurableOnesSucceedAlsoInADirectoryThatMayNotBeRead) {
  EXPECT_OK(write("f", "x", ISOGATE_FILE_DURABLE));
  directory("d", 0300);
  EXPECT_OK(write("d/f", "x", ISOGATE_FILE_DURABLE));
  EXPECT_EQ(slurp(inside("d/f")), "x");
}

TEST_F(Writes, TruncatedBodiesCommitNothing) {
  EXPECT_STATUS(truncated("new", "half a fi"), ISOGATE_CANCELLED);
  EXPECT_FALSE(exists(inside("new")));
  EXPECT_STATUS(truncated("a/b/new", "half", ISOGATE_FILE_PARENTS), ISOGATE_CANCELLED);
  EXPECT_FALSE(exists(inside("a")));
  plant("old", "whole");
  EXPECT_STATUS(truncated("old", "half"), ISOGATE_CANCELLED);
  EXPECT_STATUS(truncated("old", "half", ISOGATE_FILE_APPEND), ISOGATE_CANCELLED);
  EXPECT_EQ(slurp(inside("old")), "whole");
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, BodiesThatEndedTogetherWithTheirCancellationCommitNothing) {
  for (int i = 0; i < 200; ++i) {
    auto pipe = make_pipe();
    auto cancel = make_event();
    auto request = request_for("f");
    request.fd = pipe->read.get();
    std::thread ender([&] {
      signal_event(cancel->get());
      pipe->write.reset();
    });
    EXPECT_STATUS(files().write(request, cancel->get()), ISOGATE_CANCELLED);
    ender.join();
  }
  EXPECT_FALSE(exists(inside("f")));
}

TEST_F(Writes, ASilentSenderIsCancelled) {
  auto pipe = make_pipe();
  auto cancel = make_event();
  auto request = request_for("f");
  request.fd = pipe->read.get();
  Result<uint64_t> result = Error{};
  std::thread writer([&] { result = files().write(request, cancel->get()); });
  std::this_thread::sleep_for(50ms);
  const auto begin = std::chrono::steady_clock::now();
  signal_event(cancel->get());
  writer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s);
  EXPECT_STATUS(result, ISOGATE_CANCELLED);
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, WhatACrashLeftInStagingGoesAtTheNextOpen) {
  spill(sandbox() + "/staging/files/0123456789abcdef", "half");
  open();
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, InProgressSurviveAnotherProcessThatOpensTheSandbox) {
  auto pipe = make_pipe();
  auto request = request_for("f");
  request.fd = pipe->read.get();
  Result<uint64_t> result = Error{};
  std::thread writer([&] { result = files().write(request, -1); });
  ASSERT_EQ(::write(pipe->write.get(), "one", 3), 3);
  while (staged().empty()) std::this_thread::sleep_for(1ms);
  ASSERT_OK(Workspace::open({sandboxes_, kId, tenant(), nullptr, false, "test"}, true));
  ASSERT_EQ(::write(pipe->write.get(), "two", 3), 3);
  pipe->write.reset();
  writer.join();
  ASSERT_OK(result);
  EXPECT_EQ(slurp(inside("f")), "onetwo");
  EXPECT_TRUE(staged().empty());
}

TEST_F(Writes, WaitingForAnotherOnesCommitAreCancelled) {
  plant("huge", "");
  plant("small", "x");
  const Fd huge(::open(inside("huge").c_str(), O_WRONLY | O_CLOEXEC));
  const std::string block(4096, 'x');
  for (off_t i = 0; i < 65536; ++i)  // each block between two holes is copied by itself, which takes long
    ASSERT_EQ(::pwrite(huge.get(), block.data(), block.size(), i * 8192), 4096);
  Result<uint64_t> slow = Error{}, quick = Error{};
  Result<void> moved = Error{};
  const Fd empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto first = request_for("huge"), second = request_for("small"), third = request_for("small");
  third.path_to = {"other", 5};
  first.fd = second.fd = empty.get();
  first.flags = ISOGATE_FILE_APPEND;
  auto stop_first = make_event(), stop_second = make_event();
  std::atomic<bool> copied{false};
  std::thread one([&] {
    slow = files().write(first, stop_first->get());
    copied = true;
  });
  while (staged().size() < 2 && !copied) std::this_thread::sleep_for(1ms);  // it copies, and has the lock
  std::thread two([&] { quick = files().write(second, stop_second->get()); });
  std::thread three([&] { moved = files().move(third, stop_second->get()); });
  std::this_thread::sleep_for(20ms);
  const bool over = copied;
  const auto begin = std::chrono::steady_clock::now();
  signal_event(stop_second->get());
  two.join();
  three.join();
  const auto took = std::chrono::steady_clock::now() - begin;
  const bool too_soon = over || (copied && took < 200ms);
  signal_event(stop_first->get());
  one.join();
  EXPECT_TRUE(staged().empty());
  if (too_soon) GTEST_SKIP() << "the append was over before the others could wait for it";
  EXPECT_STATUS(quick, ISOGATE_CANCELLED);
  EXPECT_STATUS(moved, ISOGATE_CANCELLED);
  EXPECT_STATUS(slow, ISOGATE_CANCELLED) << "the others waited for its commit";
}

TEST_F(Writes, StagingIsOutOfTheTenantsReach) {
  if (!is_root()) GTEST_SKIP() << "an ordinary user's programs share its uid";
  const FsIdentity as_tenant(tenant());
  EXPECT_FALSE(exists(sandbox() + "/staging/files"));
  EXPECT_EQ(::open((sandbox() + "/staging").c_str(), O_RDONLY), -1);
  EXPECT_TRUE(exists(inside()));
}

TEST_F(Writes, OnAFullDiskFailAndLeaveTheOldFile) {
  if (!is_root()) GTEST_SKIP() << "mounting a small tmpfs needs root";
  const std::string small = top_ + "/small";
  ::mkdir(small.c_str(), 0755);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m,mode=0711") != 0)
    GTEST_SKIP() << "cannot mount a tmpfs: " << std::strerror(errno);
  {
    auto opened = Workspace::open({small, kId, tenant(), nullptr, false, "test"}, false);
    ASSERT_OK(opened);
    workspace_ = std::move(*opened);
    EXPECT_OK(write("f", "old"));
    EXPECT_STATUS(write("f", std::string(4 << 20, 'x')), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_STATUS(write("f", std::string(4 << 20, 'x'), ISOGATE_FILE_APPEND), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(*read("f"), "old");
    EXPECT_OK(write("g", std::string(512 << 10, 'x')));  // the failed write has released its blocks
    EXPECT_STATUS(write("g", std::string(256 << 10, 'x'), ISOGATE_FILE_APPEND), ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(stat("g")->size, 512U << 10);
    workspace_.reset();
    EXPECT_OK(Workspace::purge(small, kId));
  }
  EXPECT_EQ(::umount(small.c_str()), 0) << std::strerror(errno);
}

TEST_F(Writes, InTheHostsViewAreAtomicAndTheTenantsOwn) {
  open(true);
  const std::string path = outside_ + "/sub/dir/f";
  ASSERT_OK(write(path, "one", ISOGATE_FILE_PARENTS, 0, ISOGATE_SCOPE_SANDBOX));
  ASSERT_OK(write(path, "two", ISOGATE_FILE_APPEND, 0, ISOGATE_SCOPE_SANDBOX));
  EXPECT_EQ(slurp(path), "onetwo");
  struct stat made {};
  ASSERT_EQ(::stat(path.c_str(), &made), 0);
  EXPECT_EQ(made.st_uid, is_root() ? tenant().uid : ::geteuid());
  EXPECT_EQ(list(outside_ + "/sub/dir", 0, 0, ISOGATE_SCOPE_SANDBOX)->names, std::vector<std::string>{"f"});
  EXPECT_OK(remove(outside_ + "/sub", ISOGATE_FILE_RECURSIVE, ISOGATE_SCOPE_SANDBOX));
}

TEST_F(Writes, InTheHostsViewReachOnlyWhatTheTenantMay) {
  if (!is_root()) GTEST_SKIP() << "identities change only as root";
  open(true);
  EXPECT_STATUS(read("/etc/shadow", 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(write("/etc/isogate-test", "x", 0, 0, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(remove("/etc/passwd", 0, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(read(sandbox() + "/uid", 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX), ISOGATE_PERMISSION_DENIED);
  EXPECT_OK(read("/etc/passwd", 0, UINT64_MAX, ISOGATE_SCOPE_SANDBOX));
}

TEST_F(Writes, AsAnotherUserAreThatUsers) {
  if (!is_root()) GTEST_SKIP() << "identities change only as root";
  open(true);
  ::chmod(inside().c_str(), 0777);
  workspace_ = files().as({true, 23457, 23457});
  ASSERT_OK(write("f", "x"));
  EXPECT_EQ(info("f").st_uid, 23457U);
  EXPECT_EQ(list("")->names, std::vector<std::string>{"f"});
}

// A file that is staged beside its target is within reach of the tenant's programs.
class StagedBeside : public Writes {
 protected:
  void SetUp() override { open(true); }
  [[nodiscard]] std::string target() const { return outside_ + "/f"; }
  // The name of the staged file, once it exists; empty: none appeared within ten seconds.
  [[nodiscard]] std::string staged_name() const {
    const auto until = std::chrono::steady_clock::now() + 10s;
    while (std::chrono::steady_clock::now() < until)
      for (const auto& entry : std::filesystem::directory_iterator(outside_))
        if (entry.path().extension() == ".part") return entry.path().string();
    return {};
  }
};

TEST_F(StagedBeside, ASwappedFileIsNeverTakenForTheWrittenOne) {
  spill(target(), "old");
  spill(outside_ + "/secret", "secret");
  auto pipe = make_pipe();
  const std::string path = target();
  auto request = request_for(path);
  request.flags = ISOGATE_FILE_REPLACE;  // the file belongs to the test's user
  request.scope = ISOGATE_SCOPE_SANDBOX;
  request.fd = pipe->read.get();
  Result<uint64_t> written = Error{};
  std::thread writer([&] { written = files().write(request, -1); });
  const std::string staged = staged_name();
  ASSERT_NE(staged, "");
  std::filesystem::rename(staged, outside_ + "/away");
  std::filesystem::create_symlink("secret", staged);
  ASSERT_EQ(::write(pipe->write.get(), "new", 3), 3);
  pipe->write.reset();
  writer.join();
  EXPECT_STATUS(written, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(written.error().os_errno, EBUSY);
  EXPECT_EQ(slurp(target()), "old") << "and the old file stays";
}

TEST_F(StagedBeside, ASwapAtAnyMomentLeavesNoSymlinkWithASuccess) {
  spill(outside_ + "/secret", "secret");
  std::atomic<bool> stop{false};
  std::atomic<int> swaps{0};
  std::thread swapper([&] {
    while (!stop)
      for (const auto& entry : std::filesystem::directory_iterator(outside_)) {
        if (entry.path().extension() != ".part" || entry.is_symlink()) continue;
        std::error_code gone;
        std::filesystem::rename(entry.path(), outside_ + "/away", gone);
        if (!gone) std::filesystem::create_symlink("secret", entry.path(), gone);
        if (!gone) ++swaps;
      }
  });
  int good = 0;
  for (int i = 0; i < 500; ++i) {
    const auto written = write(target(), "new", 0, 0, ISOGATE_SCOPE_SANDBOX);
    struct stat there {};
    if (::lstat(target().c_str(), &there) != 0) continue;
    ASSERT_TRUE(S_ISREG(there.st_mode)) << "try " << i << (written ? ", a success" : ", an error");
    good += written ? 1 : 0;
  }
  stop = true;
  swapper.join();
  EXPECT_GT(swaps, 0);
  RecordProperty("swaps", swaps);
  RecordProperty("successes", good);
}

TEST_F(Writes, AppendedToTheLargestFileAreTooLarge) {
  plant("f", "");
  bool made = false;
  for (const off_t size : {INT64_MAX, off_t{0xFFFFFFFF000}, off_t{0x1FFFFFFF000}})
    made = made || ::truncate(inside("f").c_str(), size) == 0;
  if (!made) GTEST_SKIP() << "this file system has no sparse files so large";
  const auto appended = write("f", std::string(8192, 'x'), ISOGATE_FILE_APPEND);
  EXPECT_STATUS(appended, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(appended.error().os_errno, EFBIG) << appended.error().message;
  EXPECT_TRUE(staged().empty());
}

// As when a program empties it between the look at its size and the copy.
TEST(Copies, AFileThatEndsEarlierIsNoHole) {
  const Fd from(::memfd_create("from", MFD_CLOEXEC)), to(::memfd_create("to", MFD_CLOEXEC));
  ASSERT_TRUE(write_all(from.get(), "left"));
  for (const uint64_t size : {uint64_t{5}, uint64_t{1} << 20}) {
    const auto copied = copy_file(from.get(), size, to.get(), -1);
    EXPECT_STATUS(copied, ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(copied.error().os_errno, EBUSY);
  }
  ASSERT_EQ(::ftruncate(from.get(), 0), 0);
  EXPECT_STATUS(copy_file(from.get(), 4, to.get(), -1), ISOGATE_RESOURCE_EXHAUSTED);
  ASSERT_EQ(::ftruncate(from.get(), 1 << 20), 0);
  EXPECT_OK(copy_file(from.get(), 1 << 20, to.get(), -1)) << "a hole";
}

}  // namespace
}  // namespace isogate::test
