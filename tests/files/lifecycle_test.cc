#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "runner/files/workspace_resolve.h"
#include "tests/files/box.h"

namespace isogate::test {
namespace {

class Lifecycle : public Box {
 protected:
  Workspace::Options options(const std::string& backend = "test", const char* id = kId) {
    return {sandboxes_, id, tenant(), nullptr, false, backend};
  }
};

TEST_F(Lifecycle, LayoutIsAsDocumented) {
  const auto mode = [&](const std::string& name) {
    struct stat info {};
    EXPECT_EQ(::lstat((sandbox() + name).c_str(), &info), 0) << name;
    return std::pair<uid_t, mode_t>(info.st_uid, info.st_mode & 07777);
  };
  const uid_t theirs = is_root() ? tenant().uid : ::geteuid();
  EXPECT_EQ(mode(""), std::pair(::geteuid(), mode_t{is_root() ? 0710u : 0711u}));
  EXPECT_EQ(mode("/workspace"), std::pair(theirs, mode_t{0700}));
  EXPECT_EQ(mode("/staging"), std::pair(::geteuid(), mode_t{0700}));
  EXPECT_EQ(mode("/staging/files"), std::pair(theirs, mode_t{0700}));
  EXPECT_EQ(slurp(sandbox() + "/backend"), "test\n");
  if (is_root()) {
    EXPECT_EQ(slurp(sandbox() + "/uid"), "23456\n");
  }
}

TEST_F(Lifecycle, ReopenFindsTheSameFiles) {
  EXPECT_FALSE(files().attached());
  ASSERT_OK(write("f", "x"));
  auto again = Workspace::open(options(), true);
  ASSERT_OK(again);
  EXPECT_TRUE((*again)->attached());
  workspace_ = std::move(*again);
  EXPECT_EQ(*read("f"), "x");
}

TEST_F(Lifecycle, AttachingToNothingIsNoSandbox) {
  EXPECT_STATUS(Workspace::open(options("test", kOtherId), true), ISOGATE_NO_SANDBOX);
  EXPECT_FALSE(exists(sandboxes_ + "/" + kOtherId));
}

TEST_F(Lifecycle, AttachingToASandboxWithoutItsWorkspaceIsLost) {
  std::filesystem::remove_all(inside());
  EXPECT_STATUS(Workspace::open(options(), true), ISOGATE_SANDBOX_LOST);
  EXPECT_STATUS(Workspace::open(options(), true), ISOGATE_SANDBOX_LOST);
  auto fresh = Workspace::open(options(), false);
  ASSERT_OK(fresh);
  EXPECT_FALSE((*fresh)->attached());
}

TEST_F(Lifecycle, MalformedIdsAreRefused) {
  for (const char* id : {"", ".", "..", "isg-", "isg-ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                         "isg-abcdefghijklmnopqrstuvwxy", "isg-abcdefghijklmnopqrstuvwxyza",
                         "isg-abcdefghijklmnopqrstuvwxy/", "isg-abcdefghijklmnopqrstuvwxy1"})
    EXPECT_STATUS(Workspace::open(options("test", id), false), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Lifecycle, AnotherBackendsSandboxIsRefusedAndNotEnumerated) {
  EXPECT_STATUS(Workspace::open(options("other"), false), ISOGATE_ALREADY_EXISTS);
  ASSERT_OK(Workspace::open(options("other", kOtherId), false));
  ::mkdir((sandboxes_ + "/lost+found").c_str(), 0700);
  ::mkdir((sandboxes_ + "/isg-22222222222222222222222222").c_str(), 0700);
  EXPECT_EQ(*Workspace::enumerate(sandboxes_, "test"), std::vector<std::string>{kId});
  EXPECT_EQ(*Workspace::enumerate(sandboxes_, "other"), std::vector<std::string>{kOtherId});
  EXPECT_TRUE(Workspace::enumerate(sandboxes_, "third")->empty());
}

TEST_F(Lifecycle, AWorkspaceOfAnotherUidIsRefused) {
  if (!is_root()) GTEST_SKIP() << "identities change only as root";
  auto other = options();
  other.identity.uid = 23457;
  EXPECT_STATUS(Workspace::open(other, false), ISOGATE_PERMISSION_DENIED);
  ASSERT_EQ(::chown(inside().c_str(), 23457, 23457), 0);
  EXPECT_STATUS(Workspace::open(options(), false), ISOGATE_PERMISSION_DENIED);
}

TEST_F(Lifecycle, AStateDirectoryThatOthersMayWriteIsRefused) {
  ::chmod(sandboxes_.c_str(), 0777);
  EXPECT_STATUS(Workspace::open(options(), false), ISOGATE_PERMISSION_DENIED);
  ::chmod(sandboxes_.c_str(), 0711);
  ::chmod(sandbox().c_str(), 0722);
  EXPECT_STATUS(Workspace::open(options(), false), ISOGATE_PERMISSION_DENIED);
  ::chmod(sandbox().c_str(), 0711);
}

TEST_F(Lifecycle, AnInterruptedCreationIsCompleted) {
  const std::string half = sandboxes_ + "/" + kOtherId;
  ::mkdir(half.c_str(), 0711);
  ::mkdir((half + "/workspace.new").c_str(), 0700);
  EXPECT_STATUS(Workspace::open(options("test", kOtherId), true), ISOGATE_SANDBOX_LOST);
  ASSERT_OK(Workspace::open(options("test", kOtherId), false));
  EXPECT_TRUE(exists(half + "/workspace"));
  EXPECT_FALSE(exists(half + "/workspace.new"));
}

TEST_F(Lifecycle, PlantedLinksInAFilesPlaceTouchNothingOutside) {
  // A recursive chown over a tenant's tree would change them.
  spill(outside_ + "/f", "OUTSIDE");
  ::chmod((outside_ + "/f").c_str(), 0600);
  link(outside_ + "/f", "a");
  struct stat before {
  }, after{};
  ASSERT_EQ(::stat((outside_ + "/f").c_str(), &before), 0);
  open();
  ASSERT_EQ(::stat((outside_ + "/f").c_str(), &after), 0);
  EXPECT_EQ(before.st_uid, after.st_uid);
  EXPECT_EQ(before.st_mode, after.st_mode);
}

class Shared : public Box {
 protected:
  Shared() {
    spill(outside_ + "/book", "text");
    std::filesystem::create_directories(outside_ + "/sub");
    spill(outside_ + "/sub/f", "sub");
    dirs_.push_back({"library", Fd(::open(outside_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC))});
    dirs_.push_back(
        {"library/inner", Fd(::open((outside_ + "/sub").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC))});
    open(false, &dirs_);
  }
  ~Shared() override { workspace_.reset(); }
  std::vector<SharedDir> dirs_;
};

TEST_F(Shared, DirectoriesAreReadUnderTheirPrefix) {
  EXPECT_EQ(*read("library/book"), "text");
  EXPECT_EQ(*read("/workspace/library/sub/f"), "sub");
  EXPECT_EQ(*read("library/inner/f"), "sub");
  EXPECT_EQ(stat("library")->type, ISOGATE_ENTRY_DIRECTORY);
  EXPECT_EQ(list("library")->names.size(), 2U);
  EXPECT_EQ(list("library", ISOGATE_FILE_RECURSIVE)->names.size(), 3U);
  EXPECT_EQ(list("library/inner")->names, std::vector<std::string>{"f"});
  EXPECT_STATUS(read("library"), ISOGATE_IS_DIRECTORY);
  EXPECT_STATUS(read("libraryx/book"), ISOGATE_NOT_FOUND);
  EXPECT_TRUE(list("")->names.empty());
}

TEST_F(Shared, DirectoriesAreNeverChanged) {
  ASSERT_OK(write("mine", "x"));
  for (const auto& result : {mkdir("library/new"), mkdir("library"), remove("library/book"),
                             remove("library", ISOGATE_FILE_RECURSIVE), move("library/book", "b"),
                             move("mine", "library/m"), remove("library/inner/f")}) {
    EXPECT_STATUS(result, ISOGATE_PERMISSION_DENIED);
    EXPECT_NE(result.error().message.find("read-only shared directory"), std::string::npos);
  }
  EXPECT_STATUS(write("library/book", "x"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(write("library/new/f", "x", ISOGATE_FILE_PARENTS), ISOGATE_PERMISSION_DENIED);
  EXPECT_EQ(slurp(outside_ + "/book"), "text");
}

TEST_F(Shared, DirectoriesAreNotLeftBySymlink) {
  ASSERT_EQ(::symlink("/etc/passwd", (outside_ + "/leak").c_str()), 0);
  ASSERT_EQ(::symlink("sub/f", (outside_ + "/fine").c_str()), 0);
  const auto leak = read("library/leak");
  EXPECT_STATUS(leak, ISOGATE_PERMISSION_DENIED);
  EXPECT_NE(leak.error().message.find("shared directory"), std::string::npos);
  EXPECT_EQ(*read("library/fine"), "sub");
}

TEST_F(Shared, DirectoriesAreReadAsTheTenant) {
  if (!is_root()) GTEST_SKIP() << "identities change only as root";
  ::chmod((outside_ + "/book").c_str(), 0600);
  EXPECT_STATUS(read("library/book"), ISOGATE_PERMISSION_DENIED);
}

class WithoutOpenat2 : public Box {
 protected:
  int walk(const std::string& path, int flags = O_PATH, bool follow = true) {
    const Fd root(::open(inside().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    Tree tree;
    tree.fd = root.get();
    const Fd found(resolve_by_walking(tree, path, flags, follow));
    return found ? 0 : found.get();
  }
};

TEST_F(WithoutOpenat2, PathsWithinResolve) {
  ASSERT_OK(write("a/b/f", "x", ISOGATE_FILE_PARENTS));
  for (const char* path : {".", "a", "a/", "a/b/f", "a/b"}) EXPECT_EQ(walk(path), 0) << path;
  EXPECT_EQ(walk("a/b", O_RDONLY | O_DIRECTORY), 0);
  EXPECT_EQ(walk("a/b/f", O_RDONLY), 0);
  EXPECT_EQ(walk("a/b/f/"), -ENOTDIR);
  EXPECT_EQ(walk("a/x"), -ENOENT);
}

TEST_F(WithoutOpenat2, EverySymlinkIsRefused) {
  ASSERT_OK(write("a/f", "x", ISOGATE_FILE_PARENTS));
  link("a", "alias");
  link(outside_, "out");
  link("/etc/passwd", "p");
  EXPECT_EQ(walk("alias/f"), -ELOOP);
  EXPECT_EQ(walk("out/f"), -ELOOP);
  EXPECT_EQ(walk("p"), -ELOOP);
  EXPECT_EQ(walk("p", O_RDONLY), -ELOOP);
  EXPECT_EQ(walk("p", O_RDONLY | O_NOFOLLOW), -ELOOP);
  EXPECT_EQ(walk("p", O_PATH | O_NOFOLLOW), 0);
  EXPECT_EQ(walk("alias", O_PATH | O_DIRECTORY), -ELOOP);
}

TEST_F(WithoutOpenat2, ASwapNeverLeadsOutside) {
  directory("d");
  plant("d/inside", "x");
  spill(outside_ + "/OUTSIDE", "x");
  link(outside_, "lnk");
  const Swapper swapper(inside(), "d", "lnk");
  int good = 0;
  for (int i = 0; i < 100000; ++i) {
    ASSERT_NE(walk("d/OUTSIDE"), 0);
    good += walk("d/inside") == 0 ? 1 : 0;
  }
  EXPECT_GT(good, 0);
}

}  // namespace
}  // namespace isogate::test
