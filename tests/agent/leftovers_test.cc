// What remove_leftovers() removes, and what it keeps.
#include "runner/agent/leftovers.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/privileges/child.h"
#include "tests/support/program.h"

namespace isogate::agent {
namespace {

using test::TemporaryDirectory;

std::string names_in(const std::string& directory) {
  std::string all;
  for (const auto& each : std::filesystem::directory_iterator(directory))
    all += each.path().filename().string() + " ";
  return all;
}

// How many segments, queues and sets of semaphores this namespace has.
std::string objects() {
  shm_info segments{};
  msginfo queues{};
  seminfo sets{};
  ::shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&segments));
  ::msgctl(0, MSG_INFO, reinterpret_cast<msqid_ds*>(&queues));
  ::semctl(0, 0, SEM_INFO, &sets);
  return std::to_string(segments.used_ids) + " " + std::to_string(queues.msgpool) + " " +
         std::to_string(sets.semusz);
}

// In its own ipc namespace, so that these belong to nobody else.
TEST(Leftovers, OfSystemVMemoryQueuesAndSemaphoresGo) {
  const test::ChildEnd end = test::in_child([]() -> std::string {
    if (::unshare(CLONE_NEWIPC) != 0) return "no namespace";
    for (int i = 0; i < 3; ++i)
      if (::shmget(IPC_PRIVATE, 4096, 0600) < 0 || ::msgget(IPC_PRIVATE, 0600) < 0 ||
          ::semget(IPC_PRIVATE, 2, 0600) < 0)
        return "not made";
    const std::string before = objects();
    remove_leftovers("/nonexistent");
    return before + ", then " + objects();
  });
  if (end.said == "no namespace") GTEST_SKIP() << "unshare(CLONE_NEWIPC) needs root";
  EXPECT_EQ(end.said, "3 3 3, then 0 0 0");
}

// Nothing of the machine that runs the test may be removed, so this, too, has its own empty ipc namespace.
std::string emptied(const std::string& scratch) {
  return test::in_child([&]() -> std::string {
           if (::unshare(CLONE_NEWIPC) != 0) return "no namespace";
           remove_leftovers(scratch);
           return "done";
         })
      .said;
}

TEST(Leftovers, OfFilesGoWithAllThatIsBelowAndNoLinkIsFollowed) {
  const TemporaryDirectory scratch, outside;
  outside.file("kept", "by somebody else");
  scratch.file("plain", "x");
  scratch.file(".hidden", "x");
  std::filesystem::create_directories(scratch.path() + "/a/b/c");
  scratch.file("a/b/c/deep", "x");
  ::chmod((scratch.path() + "/a/b").c_str(), 0);
  std::filesystem::create_symlink(outside.path(), scratch.path() + "/link");
  std::filesystem::create_symlink(outside.path(), scratch.path() + "/a/link");
  const std::string said = emptied(scratch.path());
  if (said == "no namespace") GTEST_SKIP() << "unshare(CLONE_NEWIPC) needs root";
  EXPECT_EQ(said, "done");
  EXPECT_EQ(names_in(scratch.path()), "");
  EXPECT_EQ(names_in(outside.path()), "kept ");
}

TEST(Leftovers, OfADirectoryThatIsALinkAreNotOurs) {
  const TemporaryDirectory place, outside;
  outside.file("kept", "by somebody else");
  std::filesystem::create_symlink(outside.path(), place.path() + "/scratch");
  const std::string said = emptied(place.path() + "/scratch");
  if (said == "no namespace") GTEST_SKIP() << "unshare(CLONE_NEWIPC) needs root";
  EXPECT_EQ(said, "done");
  EXPECT_EQ(names_in(outside.path()), "kept ");
}

}  // namespace
}  // namespace isogate::agent
