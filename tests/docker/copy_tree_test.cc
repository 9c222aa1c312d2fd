// What of a tree gets into the archive, and what is refused.
#include "plugins/docker/files/copy_tree.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/support/program.h"

namespace isogate::docker {
namespace {

using test::TemporaryDirectory;
using testing::HasSubstr;

constexpr isogate_call kCall{sizeof(isogate_call), -1, INT64_MAX, {}};

struct CopyTree : testing::Test {
  TemporaryDirectory top;
  Copy copy{top.path(), "/opt/copied", {}, false};
  CopyRoom room{1 << 20, 1000};
  CopyOwner owner;

  std::string archive() {
    std::string bytes;
    TarWriter tar([&](std::string_view piece) { bytes += piece; });
    copy_tree(tar, copy, open_real(copy.source).get(), owner, room, sdk::Call(kCall));
    tar.finish();
    return bytes;
  }
  std::string listed(std::vector<std::string> arguments = {"-tf"}) {
    test::ProgramOptions options;
    options.stdin_bytes = archive();
    arguments.insert(arguments.begin(), {"tar", "--numeric-owner"});
    arguments.push_back("-");
    const auto result = test::run_program(arguments, options);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  std::string refusal() {
    try {
      archive();
    } catch (const HostPathError& error) {
      return error.what();
    }
    return "";
  }
  void link(const std::string& target, const std::string& name) {
    ASSERT_EQ(::symlink(target.c_str(), (top.path() + "/" + name).c_str()), 0);
  }
  void directory(const std::string& name) { std::filesystem::create_directories(top.path() + "/" + name); }
};

TEST_F(CopyTree, FilesDirectoriesAndInnerLinksAreCopiedUnchanged) {
  directory("lib/empty");
  top.file("lib/a.txt", "hello");
  top.file("run.sh", "#!/bin/sh\n", 0750);
  link("lib/a.txt", "inner");
  link("../run.sh", "lib/up");
  const std::string all = listed({"-tvf"});
  EXPECT_THAT(all, HasSubstr("dr-xr-xr-x 0/0"));
  EXPECT_THAT(all, HasSubstr("-r--r--r-- 0/0               5"));
  EXPECT_THAT(all, HasSubstr("-r-xr-xr-x 0/0"));
  EXPECT_THAT(all, HasSubstr("opt/copied/inner -> lib/a.txt"));
  EXPECT_THAT(all, HasSubstr("opt/copied/lib/up -> ../run.sh"));
  EXPECT_THAT(all, HasSubstr("lib/empty/"));
}

TEST_F(CopyTree, WritableOnesAreTheUsersOwn) {
  top.file("run.sh", "x", 04755);
  owner = {12345, 23456, true};
  EXPECT_THAT(listed({"-tvf"}), HasSubstr("-rwxr-xr-x 12345/23456"));
}

TEST_F(CopyTree, WhatIsExcludedIsNotLookedInto) {
  directory("node_modules/deep");
  ASSERT_EQ(::mkfifo((top.path() + "/node_modules/pipe").c_str(), 0600), 0);
  top.file("a.pyc", "");
  top.file("a.py", "");
  copy.exclude = {"*.pyc", "node_modules"};
  EXPECT_EQ(listed(), "opt/copied/\nopt/copied/a.py\n");
}

TEST_F(CopyTree, ASingleFileHasTheNameOfItsTarget) {
  copy.source = top.file("original", "content");
  copy.target = "/etc/app/renamed";
  EXPECT_EQ(listed(), "etc/app/renamed\n");
}

TEST_F(CopyTree, LinksThatLeadOutsideAreRefusedByName) {
  top.file("a", "");
  directory("d");
  for (const char* outside : {"/etc/passwd", "../outside", "d/../../x", "a/../../x"}) {
    link(outside, "bad");
    const std::string why = refusal();
    EXPECT_THAT(why, HasSubstr(top.path() + "/bad")) << outside;
    EXPECT_THAT(why, HasSubstr("outside")) << outside;
    ::unlink((top.path() + "/bad").c_str());
  }
}

// d/out is a link to the top's parent by way of another one: its text does not show that.
TEST_F(CopyTree, LinksThatLeadOutsideByWayOfOthersAreRefused) {
  directory("one/two");
  link("one/two", "short");
  link("short/../../..", "bad");
  EXPECT_THAT(refusal(), HasSubstr("outside"));
}

TEST_F(CopyTree, LinksThatLeadNowhereAreRefused) {
  link("nothing", "bad");
  EXPECT_THAT(refusal(), HasSubstr("leads nowhere"));
}

TEST_F(CopyTree, FifosAndSocketsAreRefusedByNameAndNeverOpened) {
  ASSERT_EQ(::mkfifo((top.path() + "/pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal(), HasSubstr("/pipe` to /opt/copied: it is a socket, a FIFO or a device"));
}

TEST_F(CopyTree, UnreadableFilesAreRefusedByName) {
  top.file("secret", "x", 0000);
  ::chmod(top.path().c_str(), 0755);
  // Root reads everything: as somebody else, in a child.
  const pid_t child = ::fork();
  if (child == 0) {
    if (::geteuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(2);
    const std::string why = refusal();
    ::_exit(why.find("/secret") != std::string::npos && why.find("denied") != std::string::npos ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CopyTree, MoreThanTheConfigurationAllowsIsRefused) {
  top.file("a", std::string(1000, 'x'));
  top.file("b", std::string(1000, 'x'));
  room = {1500, 100};
  EXPECT_THAT(refusal(), HasSubstr("copies_max_mb"));
  room = {1 << 20, 2};
  EXPECT_THAT(refusal(), HasSubstr("copies_max_entries"));
  room = {2000, 3};
  EXPECT_EQ(refusal(), "");
}

TEST_F(CopyTree, TooDeepATreeIsRefused) {
  std::string deep = "d";
  for (int i = 0; i < 110; ++i) deep += "/d";
  directory(deep);
  EXPECT_THAT(refusal(), HasSubstr("directories deep"));
}

TEST_F(CopyTree, ASourceThatIsALinkOrBelowOneIsRefused) {
  directory("real/inner");
  link("real", "alias");
  copy.source = top.path() + "/alias";
  EXPECT_THAT(refusal(), HasSubstr("symlink"));
  copy.source = top.path() + "/alias/inner";
  EXPECT_THAT(refusal(), HasSubstr("symlink"));
  copy.source = top.path() + "/nothing";
  EXPECT_THAT(refusal(), HasSubstr("No such file"));
  copy.source = "/dev/null";
  EXPECT_THAT(refusal(), HasSubstr("neither a file nor a directory"));
}

// The archive either has the file as it was or is refused: it is never of another length than it says.
TEST_F(CopyTree, AFileThatChangesMeanwhileIsAnErrorAndNoBrokenArchive) {
  const std::string path = top.file("growing", std::string(200'000, 'x'));
  bool changed = false;
  TarWriter tar([&](std::string_view piece) {
    if (piece.size() < 1000 || changed) return;
    changed = true;
    EXPECT_EQ(::truncate(path.c_str(), 70'000), 0);
  });
  try {
    copy_tree(tar, copy, open_real(copy.source).get(), owner, room, sdk::Call(kCall));
    FAIL() << "nobody noticed";
  } catch (const HostPathError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/growing"));
    EXPECT_THAT(error.what(), HasSubstr("while it was copied"));
  }
}

// Somebody swaps a directory for a link to elsewhere, all the time: nothing from there ever gets in.
TEST_F(CopyTree, ASwapOfADirectoryForALinkLeadsNowhere) {
  TemporaryDirectory elsewhere;
  elsewhere.file("stolen", "secret");
  directory("swapped");
  top.file("swapped/mine", "mine");
  const std::string path = top.path() + "/swapped", aside = top.path() + "/aside";
  copy.exclude = {"aside"};
  std::atomic<bool> done = false;
  std::thread swapper([&] {
    while (!done) {
      (void)::rename(path.c_str(), aside.c_str());
      (void)::symlink(elsewhere.path().c_str(), path.c_str());
      ::unlink(path.c_str());
      (void)::rename(aside.c_str(), path.c_str());
    }
  });
  for (int i = 0; i < 2000; ++i) {
    room = {1 << 20, 1000};
    try {
      const std::string bytes = archive();
      EXPECT_EQ(bytes.find("stolen"), std::string::npos);
    } catch (const HostPathError&) {
    }
  }
  done = true;
  swapper.join();
}

}  // namespace
}  // namespace isogate::docker
