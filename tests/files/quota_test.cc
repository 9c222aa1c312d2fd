#include "tests/files/box.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tests/eventually.h"

// A workspace with an advisory limit: what the limit refuses, and what it does not.
namespace isogate::test {
namespace {

constexpr uint64_t kMebibyte = 1 << 20;

class CountedBox : public Box {
 protected:
  // On a disk that reports a file's blocks at once.
  void limit(uint64_t bytes, bool host_view = false) {
    workspace_.reset();
    Workspace::Options options{sandboxes_, kId, tenant(), nullptr, host_view, "test"};
    options.home = [&](int sandbox) -> Result<Workspace::Home> {
      const auto copy = [&] { return Fd(::fcntl(sandbox, F_DUPFD_CLOEXEC, 0)); };
      quota_ = counter_.quota(Fd(::openat(sandbox, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)), bytes, false);
      return Workspace::Home{copy(), quota_};
    };
    auto opened = Workspace::open(std::move(options), false);
    ASSERT_OK(opened);
    workspace_ = std::move(*opened);
  }
  void TearDown() override { workspace_.reset(); }

  // Counts also run in the background: none of these tests may depend on when.
  DiskCounter counter_;
  std::shared_ptr<DiskQuota> quota_;
};

TEST_F(CountedBox, WhatWasRemovedIsFreeForTheNextWrite) {
  limit(8 * kMebibyte);
  int at_once = 0;
  for (int i = 0; i < 20; ++i) {
    // What a program removed counts until the next count, which a slow one puts off.
    ASSERT_TRUE(eventually(10, [&] { return write("half", std::string(5 * kMebibyte, 'x')).ok(); }));
    const auto refused = write("other", std::string(5 * kMebibyte, 'x'));
    EXPECT_STATUS(refused, ISOGATE_RESOURCE_EXHAUSTED);
    EXPECT_EQ(refused.error().os_errno, EDQUOT);
    ASSERT_OK(remove("half"));
    at_once += quota_->use()->used_bytes < kMebibyte ? 1 : 0;
    EXPECT_OK(write("other", std::string(5 * kMebibyte, 'x')));
    ASSERT_EQ(::unlink(inside("other").c_str()), 0);  // as a program does
  }
  EXPECT_GE(at_once, 15) << "a count that saw a file before its removal is too high until the next one";
}

TEST_F(CountedBox, DirectoriesElsewhereAreNotCounted) {
  limit(8 * kMebibyte, true);
  plant("full", std::string(9 * kMebibyte, 'x'));
  quota_->changed();
  EXPECT_STATUS(mkdir("here"), ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_STATUS(mkdir("a/b/c", ISOGATE_FILE_PARENTS), ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_FALSE(exists(inside("a"))) << "no parents either";
  const std::string path = outside_ + "/made";
  isogate_file_request request = request_for(path);
  request.scope = ISOGATE_SCOPE_SANDBOX;
  EXPECT_OK(files().mkdir(request));
  EXPECT_TRUE(exists(path));
}

TEST_F(CountedBox, ADirectoryThatWasRemovedIsFreeForTheNextWrite) {
  limit(8 * kMebibyte);
  ASSERT_OK(write("d/half", std::string(5 * kMebibyte, 'x'), ISOGATE_FILE_PARENTS));
  ASSERT_OK(remove("d", ISOGATE_FILE_RECURSIVE));
  EXPECT_OK(write("other", std::string(5 * kMebibyte, 'x')));
}

// A count of many files takes long enough for the pause after it to matter.
TEST_F(CountedBox, ManyFilesThatWereRemovedAreFreeForTheNextWrite) {
  limit(8 * kMebibyte);
  directory("many");
  for (int i = 0; i < 60'000; ++i)
    ASSERT_EQ(::mknod(inside("many/" + std::to_string(i)).c_str(), S_IFREG | 0644, 0), 0);
  EXPECT_STATUS(write("new", "x"), ISOGATE_RESOURCE_EXHAUSTED);
  std::filesystem::remove_all(inside("many"));
  quota_->changed();  // as after an exec
  EXPECT_OK(write("new", "x"));
}

// Private to the tenant, and still read by the count.
TEST_F(CountedBox, ACountBeforeARefusalSeesAll) {
  if (!is_root()) GTEST_SKIP() << "a directory that its owner may not read needs root";
  limit(8 * kMebibyte);
  ASSERT_OK(write("mine", "x"));
  directory("d", 0);
  plant("d/big", std::string(6 * kMebibyte, 'x'));
  EXPECT_STATUS(write("other", std::string(9 * kMebibyte, 'x')), ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_GE(quota_->use()->used_bytes, 6 * kMebibyte);
}

// The thread that counts in the background begins within a tenant's file call.
TEST_F(CountedBox, ACountThatOneTenantsCallBeganSeesAllOfAnother) {
  if (!is_root()) GTEST_SKIP() << "only root changes its file identity";
  limit(8 * kMebibyte);
  ASSERT_OK(mkdir("begins/the-thread", ISOGATE_FILE_PARENTS));
  const std::string other = top_ + "/other";
  ASSERT_EQ(::mkdir(other.c_str(), 0700), 0);
  ASSERT_EQ(::mkdir((other + "/private").c_str(), 0700), 0);
  spill(other + "/private/big", std::string(6 * kMebibyte, 'x'));
  const auto another =
      counter_.quota(Fd(::open(other.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), 8 * kMebibyte, false);
  ASSERT_TRUE(eventually(20, [&] { return another->use()->exact; }));
  EXPECT_GE(another->use()->used_bytes, 6 * kMebibyte);
}

TEST_F(CountedBox, AFileOfSeveralNamesCountsOnce) {
  plant("file", std::string(3 * kMebibyte, 'x'));
  for (int i = 0; i < 5; ++i)
    ASSERT_EQ(::link(inside("file").c_str(), inside("link" + std::to_string(i)).c_str()), 0);
  limit(8 * kMebibyte);
  const auto use = quota_->known();
  ASSERT_OK(use);
  EXPECT_GE(use->used_bytes, 3 * kMebibyte);
  EXPECT_LT(use->used_bytes, 4 * kMebibyte);
  EXPECT_LT(use->used_files, 10u) << "six names, and their directories";
  ASSERT_OK(remove("link0"));
  EXPECT_GE(quota_->use()->used_bytes, 3 * kMebibyte) << "its other names keep it";
}

TEST_F(CountedBox, BeyondItsLimitItCanBeEmptied) {
  plant("big", std::string(9 * kMebibyte, 'x'));
  plant("log", "kept");
  limit(8 * kMebibyte);
  EXPECT_STATUS(write("new", ""), ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_STATUS(write("log", "x"), ISOGATE_RESOURCE_EXHAUSTED);
  EXPECT_OK(write("log", "", ISOGATE_FILE_APPEND));
  EXPECT_EQ(slurp(inside("log")), "kept");
  EXPECT_OK(write("big", ""));
  EXPECT_EQ(slurp(inside("big")), "");
  EXPECT_OK(write("new", "x"));
}

TEST_F(CountedBox, ARefusalHasItsNumbersAndSaysWhatToDo) {
  plant("big", std::string(9 * kMebibyte, 'x'));
  limit(8 * kMebibyte);
  for (const auto& refused : {write("new", "x").error(), mkdir("d").error()}) {
    EXPECT_EQ(refused.os_errno, EDQUOT);
    EXPECT_THAT(refused.message, testing::HasSubstr("of 8388608 bytes"));
    EXPECT_THAT(refused.message, testing::HasSubstr("remove files, or ask the operator"));
    EXPECT_THAT(refused.message, testing::Not(testing::HasSubstr("attempted")));
  }
}

}  // namespace
}  // namespace isogate::test
