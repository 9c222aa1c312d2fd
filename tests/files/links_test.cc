#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/files/box.h"

namespace isogate::test {
namespace {

class Links : public Box {
 protected:
  // `d` is a directory with a file `f`, `lnk` a symlink to a directory outside that has one too.
  void two_ways() {
    directory("d");
    plant("d/f", "inside");
    spill(outside_ + "/f", "OUTSIDE");
    link(outside_, "lnk");
  }
  [[nodiscard]] std::vector<std::string> outside_names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(outside_))
      names.push_back(entry.path().filename());
    return names;
  }
};

TEST_F(Links, SymlinkToAFileOutsideIsRefused) {
  spill(outside_ + "/secret", "OUTSIDE");
  link("/etc/shadow", "f");
  link(outside_ + "/secret", "g");
  link("../../../outside/secret", "h");
  for (const char* path : {"f", "g", "h"}) {
    const auto result = read(path);
    EXPECT_STATUS(result, ISOGATE_PERMISSION_DENIED);
    EXPECT_NE(result.error().message.find("symlink leaves the workspace"), std::string::npos)
        << result.error().message;
    EXPECT_STATUS(write(path, "x"), ISOGATE_PERMISSION_DENIED);
    EXPECT_STATUS(write(path, "x", ISOGATE_FILE_APPEND), ISOGATE_PERMISSION_DENIED);
  }
  EXPECT_EQ(slurp(outside_ + "/secret"), "OUTSIDE");
}

TEST_F(Links, SymlinkToADirectoryOutsideIsRefused) {
  link("/", "d");
  link(outside_, "o");
  EXPECT_STATUS(read("d/etc/passwd"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(write("d/tmp/x", "x"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(write("o/x", "x", ISOGATE_FILE_PARENTS), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(write("o/a/b/x", "x", ISOGATE_FILE_PARENTS), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(mkdir("o/x"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(mkdir("o/x/y", ISOGATE_FILE_PARENTS), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(list("o"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(stat("o/"), ISOGATE_PERMISSION_DENIED);
  ASSERT_OK(write("f", "x"));
  EXPECT_STATUS(move("f", "o/f"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(remove("o/f"), ISOGATE_PERMISSION_DENIED);
  EXPECT_TRUE(outside_names().empty());
}

TEST_F(Links, DanglingSymlinkThatLeavesIsRefusedAndItsTargetNotMade) {
  link(outside_ + "/new", "dangling");
  link("dangling", "second");
  link("../../../outside/new", "up");
  for (const char* path : {"dangling", "second", "up"}) {
    EXPECT_STATUS(write(path, "x"), ISOGATE_PERMISSION_DENIED);
    EXPECT_FALSE(write(path, "x", ISOGATE_FILE_EXCLUSIVE).ok());
    EXPECT_STATUS(write(path, "x", ISOGATE_FILE_APPEND), ISOGATE_PERMISSION_DENIED);
    EXPECT_STATUS(write(path, "x", ISOGATE_FILE_REPLACE), ISOGATE_PERMISSION_DENIED);
  }
  EXPECT_STATUS(mkdir("dangling/x", ISOGATE_FILE_PARENTS), ISOGATE_PERMISSION_DENIED);
  EXPECT_TRUE(outside_names().empty());
}

TEST_F(Links, WritesGoThroughThemAndLeaveThem) {
  directory("real");
  plant("real/f", "old", 0640);
  link("real/f", "one");
  link("one", "two");
  link("real/new", "dangling");
  link("absent/new", "nowhere");
  link("real/", "directory");
  ASSERT_OK(write("two", "new"));
  EXPECT_EQ(slurp(inside("real/f")), "new");
  EXPECT_EQ(stat("real/f")->mode, 0640U);
  ASSERT_OK(write("one", "er", ISOGATE_FILE_APPEND));
  EXPECT_EQ(*read("two"), "newer");
  ASSERT_OK(write("dangling", "made", ISOGATE_FILE_DURABLE));
  EXPECT_EQ(slurp(inside("real/new")), "made");
  EXPECT_STATUS(write("nowhere", "x", ISOGATE_FILE_PARENTS), ISOGATE_NOT_FOUND);
  EXPECT_STATUS(write("directory", "x"), ISOGATE_IS_DIRECTORY);
  EXPECT_STATUS(write("two", "x", ISOGATE_FILE_EXCLUSIVE), ISOGATE_ALREADY_EXISTS);
  EXPECT_STATUS(write("nowhere/x", "x"), ISOGATE_NOT_FOUND);
  for (const char* path : {"one", "two", "dangling", "nowhere", "directory"})
    EXPECT_EQ(stat(path)->type, ISOGATE_ENTRY_SYMLINK) << path;
  ::chmod(inside("real/f").c_str(), 0444);
  EXPECT_STATUS(write("two", "x"), ISOGATE_PERMISSION_DENIED);
  EXPECT_TRUE(staged().empty());
}

TEST_F(Links, AbsoluteOnesStayInsideOnlyBelowTheSandboxsOwnPath) {
  directory("real");
  directory("real/sub");
  plant("real/f", "inside");
  spill(outside_ + "/secret", "OUTSIDE");
  link("/own/real/f", "abs");
  link("/own/real", "dir");
  link("/own", "all");
  link("/own/../../outside/secret", "out");
  link("/ownx/real/f", "beside");
  link("/own/dir/sub/../f", "long");
  link("../dir/f", "real/back");
  EXPECT_STATUS(read("abs"), ISOGATE_PERMISSION_DENIED) << "the sandbox sees its files nowhere";
  files().set_own_path("/own");
  for (const char* path : {"abs", "dir/f", "all/real/f", "all/all/dir/f", "long", "real/back", "dir/back"})
    EXPECT_EQ(*read(path), "inside") << path;
  for (const char* path : {"out", "beside", "all/out", "all/beside"}) {
    EXPECT_STATUS(read(path), ISOGATE_PERMISSION_DENIED);
    EXPECT_STATUS(write(path, "x"), ISOGATE_PERMISSION_DENIED);
  }
  ASSERT_OK(write("all/abs", "one"));
  ASSERT_OK(write("dir/sub/new/g", "two", ISOGATE_FILE_PARENTS));
  EXPECT_EQ(slurp(inside("real/f")), "one");
  EXPECT_EQ(slurp(inside("real/sub/new/g")), "two");
  EXPECT_EQ(list("dir/")->names.size(), 3U);
  EXPECT_EQ(stat("abs")->type, ISOGATE_ENTRY_SYMLINK);
  EXPECT_EQ(stat("all/abs")->type, ISOGATE_ENTRY_SYMLINK);
  EXPECT_EQ(stat("dir/")->type, ISOGATE_ENTRY_DIRECTORY);
  EXPECT_STATUS(read("dir"), ISOGATE_IS_DIRECTORY);
  EXPECT_STATUS(stat("all/abs/"), ISOGATE_NOT_FOUND) << "a file is no directory";
  EXPECT_STATUS(files().directory("dir"), ISOGATE_INVALID_ARGUMENT);
  EXPECT_OK(remove("dir/f"));
  EXPECT_OK(remove("all", ISOGATE_FILE_RECURSIVE));
  EXPECT_TRUE(exists(inside("real")));
}

TEST_F(Links, AbsoluteLoopsAreRefused) {
  files().set_own_path("/own");
  link("/own/b", "a");
  link("/own/a", "b");
  link("/own/deep/x", "deep");
  for (const char* path : {"a", "a/x", "deep"}) {
    EXPECT_STATUS(read(path), ISOGATE_PERMISSION_DENIED);
    EXPECT_STATUS(write(path, "x"), ISOGATE_PERMISSION_DENIED);
  }
}

TEST_F(Links, RelativeSymlinkWithinTheWorkspaceWorks) {
  ASSERT_OK(mkdir("real/deep", ISOGATE_FILE_PARENTS));
  ASSERT_OK(write("real/f", "one"));
  link("real", "alias");
  link("../f", "real/deep/up");
  EXPECT_EQ(*read("alias/f"), "one");
  EXPECT_EQ(*read("real/deep/up"), "one");
  EXPECT_EQ(*read("alias/deep/up"), "one");
  ASSERT_OK(write("alias/g", "two"));
  EXPECT_EQ(*read("real/g"), "two");
  ASSERT_OK(write("alias/new/g", "three", ISOGATE_FILE_PARENTS));
  EXPECT_EQ(*read("real/new/g"), "three");
  EXPECT_EQ(stat("alias")->type, ISOGATE_ENTRY_SYMLINK);
  EXPECT_OK(mkdir("alias"));
}

TEST_F(Links, LoopsAreRefused) {
  link("b", "a");
  link("a", "b");
  EXPECT_STATUS(read("a"), ISOGATE_PERMISSION_DENIED);
  EXPECT_STATUS(list("a"), ISOGATE_PERMISSION_DENIED);
}

TEST_F(Links, RemovingOrMovingASymlinkLeavesItsTarget) {
  spill(outside_ + "/f", "OUTSIDE");
  link(outside_, "o");
  link(outside_ + "/f", "f");
  ASSERT_OK(move("f", "g"));
  ASSERT_OK(remove("g"));
  ASSERT_OK(remove("o", ISOGATE_FILE_RECURSIVE));
  EXPECT_EQ(slurp(outside_ + "/f"), "OUTSIDE");
  EXPECT_TRUE(list("")->names.empty());
}

TEST_F(Links, HundredThousandReadsUnderASwapGetNoByteFromOutside) {
  two_ways();
  auto pipe = make_pipe();
  ASSERT_OK(pipe);
  auto request = request_for("d/f");
  request.fd = pipe->write.get();
  int good = 0, refused = 0;
  const Swapper swapper(inside(), "d", "lnk");
  for (int i = 0; i < 100000; ++i) {
    const auto entry = files().read(request, -1);
    if (entry) {
      char text[16] = {};
      ASSERT_EQ(::read(pipe->read.get(), text, sizeof text), 6);
      ASSERT_STREQ(text, "inside") << "try " << i;
      ++good;
    } else {
      ASSERT_TRUE(entry.error().status == ISOGATE_PERMISSION_DENIED ||
                  entry.error().status == ISOGATE_RESOURCE_EXHAUSTED)
          << entry.error().message;
      ++refused;
    }
  }
  EXPECT_GT(good, 0);
  EXPECT_GT(refused, 0);
  EXPECT_GT(swapper.count(), 1000U);
}

TEST_F(Links, TwentyThousandWritesUnderASwapPutNothingOutside) {
  two_ways();
  ASSERT_EQ(::unlink((outside_ + "/f").c_str()), 0);
  const Fd empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto request = request_for("d/f");
  request.fd = empty.get();
  int good = 0;
  {
    const Swapper swapper(inside(), "d", "lnk");
    for (int i = 0; i < 20000; ++i) good += files().write(request, -1).ok() ? 1 : 0;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 20000);
  EXPECT_TRUE(outside_names().empty());
  EXPECT_TRUE(staged().empty());
}

// The link in the last place, and the walk that follows absolute ones.
TEST_F(Links, TwentyThousandWritesThroughALinkUnderASwapPutNothingOutside) {
  files().set_own_path("/own");
  directory("real");
  plant("real/f", "inside");
  link("/own/real/f", "in");
  link(outside_ + "/f", "out");
  const Fd empty(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  auto request = request_for("in");
  request.fd = empty.get();
  int good = 0;
  {
    const Swapper swapper(inside(), "in", "out");
    for (int i = 0; i < 20000; ++i) good += files().write(request, -1).ok() ? 1 : 0;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 20000);
  EXPECT_TRUE(outside_names().empty());
  EXPECT_TRUE(staged().empty());
}

TEST_F(Links, TwentyThousandReadsThroughAnAbsoluteLinkUnderASwapGetNoByteFromOutside) {
  two_ways();
  files().set_own_path("/own");
  link("/own/d", "abs");
  int good = 0, refused = 0;
  const Swapper swapper(inside(), "d", "lnk");
  for (int i = 0; i < 20000; ++i) {
    const auto text = read("abs/f");
    ASSERT_EQ(text ? *text : "inside", "inside") << "try " << i;
    ++(text ? good : refused);
  }
  EXPECT_GT(good, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(Links, TwentyThousandDirectoriesWithParentsUnderASwapAppearInsideOnly) {
  directory("d");
  link(outside_, "lnk");
  int good = 0;
  {
    const Swapper swapper(inside(), "d", "lnk");
    for (int i = 0; i < 20000; ++i)
      good += mkdir("d/a" + std::to_string(i) + "/b/c", ISOGATE_FILE_PARENTS).ok() ? 1 : 0;
  }
  EXPECT_GT(good, 0);
  EXPECT_LT(good, 20000);
  EXPECT_TRUE(outside_names().empty());
}

TEST_F(Links, TwentyThousandRemovalsUnderASwapLeaveWhatIsOutside) {
  two_ways();
  ::mkdir((outside_ + "/t").c_str(), 0777);
  ::chmod((outside_ + "/t").c_str(), 0777);
  spill(outside_ + "/t/f", "OUTSIDE");
  int good = 0;
  {
    const Swapper swapper(inside(), "d", "lnk");
    for (int i = 0; i < 10000; ++i) {
      good += remove("d/f").ok() ? 1 : 0;
      good += remove("d/t", ISOGATE_FILE_RECURSIVE).ok() ? 1 : 0;
    }
  }
  EXPECT_EQ(good, 1);  // the one file inside
  EXPECT_EQ(slurp(outside_ + "/f"), "OUTSIDE");
  EXPECT_EQ(slurp(outside_ + "/t/f"), "OUTSIDE");
}

TEST_F(Links, ATreeBeingRemovedWhileItsDirectoriesAreSwappedNeverReachesOutside) {
  spill(outside_ + "/keep", "OUTSIDE");
  for (int round = 0; round < 300; ++round) {
    directory("t");
    directory("t/d");
    link(outside_, "t/lnk");
    for (int i = 0; i < 10; ++i) plant("t/d/" + std::to_string(i), "x");
    {
      const Swapper swapper(inside("t"), "d", "lnk");
      EXPECT_OK(remove("t", ISOGATE_FILE_RECURSIVE));
    }
    ASSERT_EQ(slurp(outside_ + "/keep"), "OUTSIDE");
    ASSERT_FALSE(exists(inside("t")));
  }
}

TEST_F(Links, ARecursiveListingUnderASwapShowsNothingFromOutside) {
  two_ways();
  spill(outside_ + "/OUTSIDE", "x");
  const Swapper swapper(inside(), "d", "lnk");
  for (int i = 0; i < 5000; ++i) {
    const auto listed = list("", ISOGATE_FILE_RECURSIVE);
    ASSERT_OK(listed);
    for (const auto& name : listed->names) ASSERT_EQ(name.find("OUTSIDE"), std::string::npos);
  }
}

}  // namespace
}  // namespace isogate::test
