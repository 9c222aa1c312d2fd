#include "gateway/supervisor/local_key.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "lib/hash.h"
#include "lib/redact.h"
#include "tests/support/program.h"

namespace isogate::supervisor {
namespace {

class LocalKey : public testing::Test {
 protected:
  Result<std::string> hash() { return local_key_sha256(dir_.get(), directory_.path()); }
  std::string message() {
    auto result = hash();
    return result ? "ok" : result.error().message;
  }
  [[nodiscard]] std::string content() const { return test::read_whole(path_); }

  test::TemporaryDirectory directory_;
  Fd dir_{::open(directory_.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  std::string path_ = directory_.path() + "/local.key";
};

TEST_F(LocalKey, is_created_once_for_its_owner_only) {
  auto first = hash();
  ASSERT_TRUE(first.ok()) << first.error().message;
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777u, 0600u);
  const std::string key = content();
  ASSERT_EQ(key.size(), 4 + 43 + 1u);
  EXPECT_TRUE(key.starts_with("isg_"));
  EXPECT_EQ(*first, sha256_hex(key.substr(0, key.size() - 1)));
  EXPECT_EQ(message(), "ok");
  EXPECT_EQ(content(), key);
  EXPECT_EQ(*hash(), *first);
}

TEST_F(LocalKey, differs_each_time) {
  auto first = hash();
  ASSERT_EQ(::unlink(path_.c_str()), 0);
  auto second = hash();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
}

TEST_F(LocalKey, is_known_to_the_log) {
  ASSERT_EQ(message(), "ok");
  const std::string key = content().substr(0, 47);
  EXPECT_EQ(redact("x " + key + " y").find(key.substr(4)), std::string::npos);
}

TEST_F(LocalKey, that_others_may_read_is_refused) {
  ASSERT_EQ(message(), "ok");
  ASSERT_EQ(::chmod(path_.c_str(), 0640), 0);
  EXPECT_NE(message().find("others may read it"), std::string::npos);
  EXPECT_NE(message().find("rm '"), std::string::npos);
  ASSERT_EQ(::chmod(path_.c_str(), 0400), 0);
  EXPECT_EQ(message(), "ok");
}

TEST_F(LocalKey, that_is_no_key_is_refused_and_kept) {
  for (const std::string text : {"", "isg_short\n", "isg_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!\n"}) {
    directory_.file("local.key", text, 0600);
    EXPECT_NE(message().find("holds no key"), std::string::npos) << text;
    EXPECT_EQ(content(), text);
  }
}

TEST_F(LocalKey, that_is_a_link_a_fifo_or_a_stranger_is_refused) {
  directory_.file("elsewhere", "isg_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n", 0600);
  ASSERT_EQ(::symlink("elsewhere", path_.c_str()), 0);
  EXPECT_NE(message(), "ok");
  ::unlink(path_.c_str());
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(message().find("no regular file"), std::string::npos);
  if (::geteuid() != 0) return;
  ::unlink(path_.c_str());
  ASSERT_EQ(message(), "ok");
  ASSERT_EQ(::chown(path_.c_str(), 4242, 4242), 0);
  EXPECT_NE(message().find("belongs to uid 4242"), std::string::npos);
}

TEST_F(LocalKey, an_incomplete_one_is_no_obstacle) {
  directory_.file("local.key.new", "isg_half", 0600);
  EXPECT_EQ(message(), "ok");
  EXPECT_NE(::access((path_ + ".new").c_str(), F_OK), 0);
}

}  // namespace
}  // namespace isogate::supervisor
