#include "runner/agent/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::agent {
namespace {

constexpr const char* kNamer = ISOGATE_BUILD_DIR "/bin/isogate-runner";

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
        {"setpriv", "--reuid", number, "--regid", number, "--clear-groups", kNamer, "names", passwd, group});
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
  }
  return {test::read_whole(passwd), test::read_whole(group)};
}

TEST(Names, AUserWithoutANameGetsALine) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root becomes another user";
  const std::string passwd = test::read_whole("/etc/passwd"), group = test::read_whole("/etc/group");
  const Written unnamed = written_by("61234");
  EXPECT_EQ(unnamed.passwd, "agent:x:61234:61234::/workspace:/bin/sh\n" + passwd);
  EXPECT_EQ(unnamed.group, "agent:x:61234:\n" + group);
  const Written named = written_by("0");
  EXPECT_EQ(named.passwd, passwd);
  EXPECT_EQ(named.group, group);
}

// With another /etc/passwd, made by `script` at $f.
TEST(Names, OfAnImageMayBeTakenOrOdd) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root mounts";
  const test::TemporaryDirectory directory;
  EXPECT_EQ(::chmod(directory.path().c_str(), 0777), 0);
  const char* const somebody = "setpriv --reuid 61234 --regid 61234 --clear-groups ";
  const auto with = [&](const std::string& script, const std::string& as) {
    return test::run_program({"unshare", "--mount", "sh", "-ec",
                              "f=" + directory.path() + "/own; rm -f $f; " + script +
                                  "; mount --bind $f /etc/passwd; exec " + as + kNamer + " names " +
                                  directory.path() + "/passwd " + directory.path() + "/group"});
  };
  EXPECT_EQ(with("printf agent:x:7:7:::/a > $f", somebody).exit_code, 0);
  EXPECT_EQ(test::read_whole(directory.path() + "/passwd"),
            "agent:x:61234:61234::/workspace:/bin/sh\nagent:x:7:7:::/a");
  EXPECT_EQ(with("echo hidden > $f; chmod 0 $f", somebody).exit_code, 0);
  EXPECT_EQ(test::read_whole(directory.path() + "/passwd"), "agent:x:61234:61234::/workspace:/bin/sh\n");
  const auto fifo = with("mkfifo $f", "");  // setpriv would read it
  EXPECT_EQ(fifo.exit_code, 1);
  EXPECT_THAT(fifo.err, testing::HasSubstr("`/etc/passwd` is not a regular file"));
  EXPECT_EQ(with("truncate -s 17M $f", somebody).exit_code, 1);
}

TEST(Names, AreReadOnlyAndRefusedWhereTheyCannotBe) {
  const test::TemporaryDirectory directory;
  const std::string passwd = directory.path() + "/passwd", group = directory.path() + "/group";
  ASSERT_EQ(test::run_program({kNamer, "names", passwd, group}).exit_code, 0);
  for (const std::string& path : {passwd, group}) {
    struct stat info {};
    ASSERT_EQ(::stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0444u) << path;
  }
  EXPECT_EQ(test::run_program({kNamer, "names", "/no/such/place/passwd", group}).exit_code, 1);
  EXPECT_EQ(test::run_program({kNamer, "names", passwd}).exit_code, 2);
}

}  // namespace
}  // namespace isogate::agent
