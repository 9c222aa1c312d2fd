#include "plugins/docker/companions/companion_record.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "isogate/backend.hpp"
#include "lib/fd.h"
#include "tests/support/program.h"

namespace isogate::docker {
namespace {

struct CompanionRecords : testing::Test {
  test::TemporaryDirectory directory;
  Fd fd{::open(directory.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
};

TEST_F(CompanionRecords, ComeBackAsTheyWereWritten) {
  EXPECT_TRUE(read_companions(fd.get()).empty());
  write_companions(fd.get(), {{"db", "isg-x.db.0011", "", ""}, {"cache", "isg-x.cache.22", "abc", "then"}});
  const auto found = read_companions(fd.get());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, "isg-x.db.0011");
  EXPECT_EQ(found[0].id, "");
  EXPECT_EQ(found[1].companion, "cache");
  EXPECT_EQ(found[1].id, "abc");
  EXPECT_EQ(found[1].hooked, "then");
  write_companions(fd.get(), {});
  EXPECT_NE(::access((directory.path() + "/companions").c_str(), F_OK), 0);
  write_companions(fd.get(), {});
}

TEST_F(CompanionRecords, ADamagedOneIsAnErrorAndNeverNone) {
  for (const char* damaged : {"", "{", "[]", "{\"companions\": [{}]}", "{\"companions\": 3}"}) {
    directory.file("companions", damaged);
    EXPECT_THROW(read_companions(fd.get()), sdk::Error) << damaged;
  }
}

TEST_F(CompanionRecords, ALinkIsNotFollowed) {
  const std::string elsewhere = directory.file("elsewhere", "{\"companions\": []}");
  ASSERT_EQ(::symlink(elsewhere.c_str(), (directory.path() + "/companions").c_str()), 0);
  EXPECT_THROW(read_companions(fd.get()), sdk::Error);
}

}  // namespace
}  // namespace isogate::docker
