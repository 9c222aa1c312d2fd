#include "runner/agent/names.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::agent {
namespace {

constexpr const char* kRunner = ISOGATE_BUILD_DIR "/bin/isogate-runner";

TEST(Names, AreReadFromPasswd) {
  const char* const passwd = "root:x:0:0:root:/root:/bin/sh\n:x:5:5::/:\nbad\nagent1:x:1000:1000::/w:/bin/sh";
  EXPECT_EQ(name_of_number(passwd, 0), "root");
  EXPECT_EQ(name_of_number(passwd, 1000), "agent1");
  EXPECT_EQ(name_of_number(passwd, 5), std::nullopt);
  EXPECT_EQ(name_of_number("", 5), std::nullopt);
}

struct Written {
  std::string passwd, group;
};

// As `number`, user and group; the files that were there before are replaced.
Written written_by(const std::string& number) {
  const test::TemporaryDirectory directory;
  const std::string passwd = directory.path() + "/passwd", group = directory.path() + "/group";
  EXPECT_EQ(::chmod(directory.path().c_str(), 0777), 0);
  for (int twice = 0; twice < 2; ++twice) {
    const auto ran = test::run_program(
        {"setpriv", "--reuid", number, "--regid", number, "--clear-groups", kRunner, "names", passwd, group});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    EXPECT_EQ(::chmod(passwd.c_str(), 0600), 0);
    EXPECT_EQ(::chmod(group.c_str(), 0600), 0);
  }
  return {test::read_whole(passwd), test::read_whole(group)};
}

TEST(Names, WhoHasNoneGetsALineMore) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const std::string passwd = test::read_whole("/etc/passwd"), group = test::read_whole("/etc/group");
  const Written unnamed = written_by("61234");
  EXPECT_EQ(unnamed.passwd, passwd + "agent:x:61234:61234::/workspace:/bin/sh\n");
  EXPECT_EQ(unnamed.group, group + "agent:x:61234:\n");
  const Written named = written_by("0");
  EXPECT_EQ(named.passwd, passwd);
  EXPECT_EQ(named.group, group);
}

TEST(Names, AreReadOnlyAndRefusedWhereTheyCannotBe) {
  const test::TemporaryDirectory directory;
  const std::string passwd = directory.path() + "/passwd", group = directory.path() + "/group";
  ASSERT_EQ(test::run_program({kRunner, "names", passwd, group}).exit_code, 0);
  for (const std::string& path : {passwd, group}) {
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0444u) << path;
  }
  EXPECT_EQ(test::run_program({kRunner, "names", "/no/such/place/passwd", group}).exit_code, 1);
  EXPECT_EQ(test::run_program({kRunner, "names", passwd}).exit_code, 2);
}

}  // namespace
}  // namespace isogate::agent
