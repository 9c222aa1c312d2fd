#include <fcntl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>

#include "runner/files/workspace_trash.h"
#include "tests/files/box.h"

namespace isogate::test {
namespace {

class Trees : public Box {
 protected:
  using Box::list;
  // Without the empty trash.
  [[nodiscard]] bool is_all_gone() const {
    for (const auto& each : std::filesystem::directory_iterator(sandboxes_))
      if (each.path().filename() != ".purged" || !std::filesystem::is_empty(each.path())) return false;
    return true;
  }
  // What a purge had no time to remove.
  void sweep() const {
    const Fd sandboxes(::open(sandboxes_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    EXPECT_TRUE(empty_trash(sandboxes.get(), -1).ok());
  }
  // Recursively; includes what came before an error.
  Result<void> list(const std::string& path, Listed& listed) {
    auto request = request_for(path);
    request.flags = ISOGATE_FILE_RECURSIVE;
    const isogate_entry_sink sink{&listed, [](void* ctx, const isogate_entry* entry) -> isogate_status {
                                    static_cast<Listed*>(ctx)->names.emplace_back(entry->name.ptr,
                                                                                  entry->name.len);
                                    return ISOGATE_OK;
                                  }};
    return files().list(request, sink, -1);
  }

  // `levels` nested directories, deeper than any path can name, created from descriptor to descriptor.
  void dig(const std::string& name, int levels) {
    directory(name);
    Fd dir(::open(inside(name).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    const FsIdentity as_tenant(tenant());
    for (int i = 0; i < levels; ++i) {
      ASSERT_EQ(::mkdirat(dir.get(), "dddddddddd", 0700), 0);
      Fd file(::openat(dir.get(), "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
      dir = Fd(::openat(dir.get(), "dddddddddd", O_PATH | O_DIRECTORY | O_CLOEXEC));
      ASSERT_TRUE(dir);
    }
  }
};

TEST_F(Trees, ListingReportsTypesSizesAndModes) {
  plant("f", "hello", 0640);
  directory("d", 0750);
  link("f", "l");
  ASSERT_EQ(::mkfifo(inside("p").c_str(), 0600), 0);
  const auto listed = list("");
  ASSERT_OK(listed);
  ASSERT_EQ(listed->names.size(), 4U);
  for (size_t i = 0; i < 4; ++i) {
    const auto& entry = listed->entries[i];
    if (listed->names[i] == "f") {
      EXPECT_EQ(entry.type, ISOGATE_ENTRY_REGULAR);
      EXPECT_EQ(entry.size, 5U);
      EXPECT_EQ(entry.mode, 0640U);
    } else if (listed->names[i] == "d") {
      EXPECT_EQ(entry.type, ISOGATE_ENTRY_DIRECTORY);
      EXPECT_EQ(entry.mode, 0750U);
    } else {
      EXPECT_EQ(entry.type, listed->names[i] == "l" ? ISOGATE_ENTRY_SYMLINK : ISOGATE_ENTRY_OTHER);
    }
  }
  EXPECT_STATUS(list("absent"), ISOGATE_NOT_FOUND);
  EXPECT_FALSE(list("f").ok());
  EXPECT_FALSE(list("p").ok());
}

TEST_F(Trees, RecursiveListingPutsParentsFirstAndStaysOutOfLinks) {
  ASSERT_OK(write("a/b/c/f", "x", ISOGATE_FILE_PARENTS));
  ASSERT_OK(write("a/g", "x"));
  link("a", "alias");
  link(outside_, "out");
  spill(outside_ + "/OUTSIDE", "x");
  const auto listed = list("", ISOGATE_FILE_RECURSIVE);
  ASSERT_OK(listed);
  const std::set<std::string> names(listed->names.begin(), listed->names.end());
  EXPECT_EQ(names, (std::set<std::string>{"a", "a/b", "a/b/c", "a/b/c/f", "a/g", "alias", "out"}));
  std::set<std::string> seen;
  for (const auto& name : listed->names) {
    const auto slash = name.rfind('/');
    EXPECT_TRUE(slash == std::string::npos || seen.count(name.substr(0, slash)) == 1) << name;
    seen.insert(name);
  }
  EXPECT_EQ(list("a/b", ISOGATE_FILE_RECURSIVE)->names, (std::vector<std::string>{"c", "c/f"}));
}

TEST_F(Trees, WideAndDeepListingMissesNothing) {
  std::set<std::string> expected;
  for (int i = 0; i < 40; ++i) {
    std::string path = "w" + std::to_string(i);
    for (int j = 0; j < 30; ++j) path += "/n" + std::to_string(j);
    ASSERT_OK(mkdir(path, ISOGATE_FILE_PARENTS));
    for (std::string part = path; !part.empty(); part = part.substr(0, part.rfind('/'))) {
      expected.insert(part);
      if (part.find('/') == std::string::npos) break;
    }
  }
  directory("many");
  expected.insert("many");
  for (int i = 0; i < 3000; ++i) {
    plant("many/file" + std::to_string(i), "");
    expected.insert("many/file" + std::to_string(i));
  }
  const auto listed = list("", ISOGATE_FILE_RECURSIVE);
  ASSERT_OK(listed);
  EXPECT_EQ(std::set<std::string>(listed->names.begin(), listed->names.end()), expected);
  EXPECT_EQ(listed->names.size(), expected.size());
}

TEST_F(Trees, ListingStopsAtItsLimitItsReceiverAndItsCancellation) {
  for (int i = 0; i < 20; ++i) plant(std::to_string(i), "");
  EXPECT_EQ(list("", 0, 7)->names.size(), 7U);
  EXPECT_EQ(list("", ISOGATE_FILE_RECURSIVE, 20)->names.size(), 20U);
  const isogate_entry_sink full{
      nullptr, [](void*, const isogate_entry*) -> isogate_status { return ISOGATE_RESOURCE_EXHAUSTED; }};
  EXPECT_STATUS(files().list(request_for(""), full, -1), ISOGATE_RESOURCE_EXHAUSTED);
  auto cancel = make_event();
  signal_event(cancel->get());
  EXPECT_STATUS(files().list(request_for(""), full, cancel->get()), ISOGATE_CANCELLED);
}

TEST_F(Trees, ListingCallsItsReceiverAsTheHost) {
  if (!is_root()) GTEST_SKIP() << "identities change only as root";
  plant("f", "");
  const isogate_entry_sink sink{nullptr, [](void*, const isogate_entry*) -> isogate_status {
                                  const Fd shadow(::open("/etc/shadow", O_RDONLY | O_CLOEXEC));
                                  return shadow ? ISOGATE_OK : ISOGATE_PERMISSION_DENIED;
                                }};
  EXPECT_OK(files().list(request_for(""), sink, -1));
}

TEST_F(Trees, MkdirIsIdempotentUnlessExclusive) {
  ASSERT_OK(mkdir("d"));
  EXPECT_OK(mkdir("d"));
  EXPECT_OK(mkdir("d/"));
  EXPECT_OK(mkdir("."));
  EXPECT_STATUS(mkdir("d", ISOGATE_FILE_EXCLUSIVE), ISOGATE_ALREADY_EXISTS);
  EXPECT_STATUS(mkdir("a/b"), ISOGATE_NOT_FOUND);
  plant("f", "x");
  EXPECT_STATUS(mkdir("f"), ISOGATE_ALREADY_EXISTS);
  ASSERT_OK(mkdir("p", 0, 0777));
  EXPECT_EQ(stat("p")->mode, 0777U);
  EXPECT_EQ(stat("d")->mode, 0755U);
}

TEST_F(Trees, MoveReplacesAFileUnlessExclusive) {
  plant("a", "one");
  plant("b", "two");
  EXPECT_STATUS(move("a", "b", ISOGATE_FILE_EXCLUSIVE), ISOGATE_ALREADY_EXISTS);
  ASSERT_OK(move("a", "b"));
  EXPECT_EQ(*read("b"), "one");
  EXPECT_STATUS(move("a", "c"), ISOGATE_NOT_FOUND);
  EXPECT_STATUS(move("b", "x/y/b"), ISOGATE_NOT_FOUND);
  ASSERT_OK(move("b", "x/y/b", ISOGATE_FILE_PARENTS));
  EXPECT_STATUS(move("x", "x/y/z"), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(move("absent", "n/m", ISOGATE_FILE_PARENTS), ISOGATE_NOT_FOUND);
  EXPECT_FALSE(exists(inside("n")));
  EXPECT_STATUS(move("x", "."), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(move(".", "z"), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Trees, RemoveTakesFilesEmptyDirectoriesAndTreesOnRequest) {
  ASSERT_OK(write("d/f", "x", ISOGATE_FILE_PARENTS));
  EXPECT_STATUS(remove("d"), ISOGATE_ALREADY_EXISTS);
  EXPECT_EQ(*read("d/f"), "x");
  EXPECT_FALSE(remove("d/f/").ok());
  ASSERT_OK(remove("d/f"));
  ASSERT_OK(remove("d"));
  EXPECT_STATUS(remove("d"), ISOGATE_NOT_FOUND);
  EXPECT_STATUS(remove("d", ISOGATE_FILE_RECURSIVE), ISOGATE_NOT_FOUND);
  EXPECT_STATUS(remove(".", ISOGATE_FILE_RECURSIVE), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(remove("", ISOGATE_FILE_RECURSIVE), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Trees, TreesDeeperThanAnyPathAreListedAsFarAsPathsGoWhichIsSaidAndRemoved) {
  dig("deep", 3000);
  Listed listed;
  const auto cut = list("", listed);
  EXPECT_STATUS(cut, ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_EQ(cut.error().os_errno, ENAMETOOLONG);
  EXPECT_GT(listed.names.size(), 700U);
  ASSERT_OK(remove("deep", ISOGATE_FILE_RECURSIVE));
  EXPECT_TRUE(list("")->names.empty());
}

TEST_F(Trees, DeepTreesNeedFewDescriptors) {
  dig("deep", 1000);
  std::vector<Fd> taken;
  rlimit old{}, low{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &old), 0);
  low = old;
  low.rlim_cur = 110;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  Listed listed;
  const auto cut = list("", listed);
  const auto removed = remove("deep", ISOGATE_FILE_RECURSIVE);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &old), 0);
  EXPECT_EQ(cut.error().os_errno, ENAMETOOLONG);
  EXPECT_OK(removed);
}

TEST_F(Trees, DirectoriesClosedToTheirOwnerAreRemoved) {
  for (const char* name : {"t", "t/none", "t/noexec", "t/nowrite", "t/nowrite/sub"}) directory(name);
  for (const char* name : {"t/none/f", "t/noexec/f", "t/nowrite/f", "t/nowrite/sub/f"}) plant(name, "x");
  ::chmod(inside("t/none").c_str(), 0);
  ::chmod(inside("t/noexec").c_str(), 0600);
  ::chmod(inside("t/nowrite/sub").c_str(), 0500);
  ::chmod(inside("t/nowrite").c_str(), 0500);
  ASSERT_OK(remove("t", ISOGATE_FILE_RECURSIVE));
  EXPECT_FALSE(exists(inside("t")));
}

TEST_F(Trees, WhatItsUserMayNotRemoveStaysAndIsReportedTheRestGoes) {
  if (!is_root()) GTEST_SKIP() << "needs a file of another user";
  directory("t");
  plant("t/mine", "x");
  ASSERT_EQ(::mkdir(inside("t/roots").c_str(), 0755), 0);
  spill(inside("t/roots/f"), "x");
  EXPECT_STATUS(remove("t", ISOGATE_FILE_RECURSIVE), ISOGATE_PERMISSION_DENIED);
  EXPECT_FALSE(exists(inside("t/mine")));
  EXPECT_TRUE(exists(inside("t/roots/f")));
}

TEST_F(Trees, RemovingIsCancelled) {
  dig("deep", 200);
  auto cancel = make_event();
  signal_event(cancel->get());
  auto request = request_for("deep");
  request.flags = ISOGATE_FILE_RECURSIVE;
  EXPECT_STATUS(files().remove(request, cancel->get()), ISOGATE_CANCELLED);
}

TEST_F(Trees, AMountInsideIsNeitherListedNorEmptied) {
  if (!is_root()) GTEST_SKIP() << "mounting needs root";
  spill(outside_ + "/keep", "OUTSIDE");
  directory("t");
  directory("t/m");
  if (::mount(outside_.c_str(), inside("t/m").c_str(), nullptr, MS_BIND, nullptr) != 0)
    GTEST_SKIP() << "cannot bind: " << std::strerror(errno);
  EXPECT_STATUS(read("t/m/keep"), ISOGATE_PERMISSION_DENIED);
  EXPECT_EQ(list("", ISOGATE_FILE_RECURSIVE)->names, (std::vector<std::string>{"t", "t/m"}));
  EXPECT_FALSE(remove("t", ISOGATE_FILE_RECURSIVE).ok());
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  EXPECT_FALSE(exists(sandbox()));
  EXPECT_EQ(slurp(outside_ + "/keep"), "OUTSIDE");
  const Fd sandboxes(::open(sandboxes_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_FALSE(empty_trash(sandboxes.get(), -1).ok()) << "the mount is in the way";
  for (const auto& entry : std::filesystem::directory_iterator(sandboxes_ + "/.purged"))
    EXPECT_EQ(::umount((entry.path() / "workspace/t/m").c_str()), 0) << std::strerror(errno);
  const auto emptied = empty_trash(sandboxes.get(), -1);
  EXPECT_TRUE(emptied.ok() && *emptied);
  EXPECT_TRUE(is_all_gone());
  EXPECT_EQ(slurp(outside_ + "/keep"), "OUTSIDE");
}

// However many files there are, and whenever it is cancelled.
TEST_F(Trees, PurgeIsOneStepAndTheRestFollows) {
  for (int i = 0; i < 2000; ++i) spill(inside(std::to_string(i)), "x");
  auto cancel = make_event();
  signal_event(cancel->get());
  EXPECT_OK(Workspace::purge(sandboxes_, kId, cancel->get()));
  EXPECT_FALSE(exists(sandbox()));
  EXPECT_TRUE(exists(sandboxes_ + "/.purged")) << "there was no time to remove it";
  EXPECT_TRUE(Workspace::enumerate(sandboxes_, "")->empty());
  open();
  EXPECT_OK(write("new", "x"));
  {
    TrashSweeper sweeper(sandboxes_, [](const std::string& line) { ADD_FAILURE() << line; });
    for (int i = 0; i < 1000 && !std::filesystem::is_empty(sandboxes_ + "/.purged"); ++i) ::usleep(10'000);
    EXPECT_TRUE(std::filesystem::is_empty(sandboxes_ + "/.purged"));
    for (int i = 0; i < 2000; ++i) spill(inside("again-" + std::to_string(i)), "x");
    EXPECT_OK(Workspace::purge(sandboxes_, kId, cancel->get()));
    sweeper.wake();
    for (int i = 0; i < 1000 && !std::filesystem::is_empty(sandboxes_ + "/.purged"); ++i) ::usleep(10'000);
  }
  EXPECT_TRUE(is_all_gone());
}

TEST_F(Trees, APurgeThatFailsLeavesAllOfTheSandbox) {
  ASSERT_OK(write("kept", "x"));
  spill(sandboxes_ + "/.purged", "in the way");
  EXPECT_FALSE(Workspace::purge(sandboxes_, kId).ok());
  EXPECT_EQ(slurp(inside("kept")), "x");
  ASSERT_EQ(::unlink((sandboxes_ + "/.purged").c_str()), 0);
  ASSERT_EQ(::symlink(outside_.c_str(), (sandboxes_ + "/.purged").c_str()), 0);
  EXPECT_FALSE(Workspace::purge(sandboxes_, kId).ok()) << "the trash is a link";
  ASSERT_EQ(::unlink((sandboxes_ + "/.purged").c_str()), 0);
  ASSERT_EQ(::mkdir((sandboxes_ + "/.purged").c_str(), 0777), 0);
  ASSERT_EQ(::chmod((sandboxes_ + "/.purged").c_str(), 0777), 0);
  EXPECT_FALSE(Workspace::purge(sandboxes_, kId).ok()) << "others may write to the trash";
  EXPECT_EQ(slurp(inside("kept")), "x");
  ASSERT_EQ(::rmdir((sandboxes_ + "/.purged").c_str()), 0);
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  EXPECT_FALSE(exists(sandbox()));
  sweep();
  EXPECT_TRUE(is_all_gone());
}

TEST_F(Trees, PurgesAtOnceDoNotGetInEachOthersWay) {
  std::vector<std::string> ids;
  for (char c = 'a'; c <= 'p'; ++c) ids.push_back("isg-" + std::string(26, c));
  for (int round = 0; round < 20; ++round) {
    std::vector<std::thread> threads;
    for (const std::string& id : ids) {
      threads.emplace_back([&, id] {
        ASSERT_TRUE(Workspace::open({sandboxes_, id, Identity(), nullptr, false, ""}, false).ok());
        EXPECT_OK(Workspace::purge(sandboxes_, id));
      });
    }
    for (auto& thread : threads) thread.join();
  }
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  // What takes one of them longer than a second is left to the sweeper.
  sweep();
  EXPECT_TRUE(is_all_gone());
}

TEST_F(Trees, PurgeSurvivesATenantThatKeepsRenamingAndFilling) {
  spill(outside_ + "/keep", "OUTSIDE");
  for (int round = 0; round < 50; ++round) {
    open();
    directory("d");
    link(outside_, "lnk");
    for (int i = 0; i < 20; ++i) directory("d/" + std::to_string(i));
    std::atomic<bool> stop{false};
    std::thread filler([&] {
      const Fd dir(::open(inside("d").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
      for (int i = 0; !stop; ++i) {
        const Fd file(
            ::openat(dir.get(), std::to_string(i % 50).c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
        ::renameat(dir.get(), std::to_string(i % 20).c_str(), dir.get(),
                   std::to_string((i + 1) % 20).c_str());
      }
    });
    {
      const Swapper swapper(inside(), "d", "lnk");
      EXPECT_OK(Workspace::purge(sandboxes_, kId));
    }
    stop = true;
    filler.join();
    ASSERT_FALSE(exists(sandbox()));
    ASSERT_EQ(slurp(outside_ + "/keep"), "OUTSIDE");
  }
}

TEST_F(Trees, PurgeTakesEveryTraceAndMayBeRepeated) {
  ASSERT_OK(write("a/b/c", "x", ISOGATE_FILE_PARENTS));
  dig("deep", 500);
  directory("closed", 0);
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  EXPECT_FALSE(exists(sandbox()));
  sweep();
  EXPECT_TRUE(is_all_gone());
  EXPECT_OK(Workspace::purge(sandboxes_, kId));
  EXPECT_STATUS(Workspace::purge(sandboxes_, ".."), ISOGATE_INVALID_ARGUMENT);
  EXPECT_STATUS(Workspace::purge(sandboxes_, ""), ISOGATE_INVALID_ARGUMENT);
}

TEST_F(Trees, PurgeDoesNotFollowALinkPlantedAsTheSandbox) {
  spill(outside_ + "/keep", "OUTSIDE");
  ASSERT_EQ(::symlink(outside_.c_str(), (sandboxes_ + "/" + kOtherId).c_str()), 0);
  EXPECT_FALSE(Workspace::purge(sandboxes_, kOtherId).ok());
  EXPECT_EQ(slurp(outside_ + "/keep"), "OUTSIDE");
}

}  // namespace
}  // namespace isogate::test
