#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <thread>

#include "gateway/base/privileges.h"
#include "tests/privileges/child.h"

namespace isogate::test {
namespace {

using Runner = ChildEnd (*)(const std::function<std::string()>&);

ChildEnd quarantined(Runner runner, const std::function<std::string()>& body) {
  return runner([&]() -> std::string {
    if (auto result = enter_quarantine(); !result) return result.error().message;
    return body();
  });
}

// As the user who runs the tests, and as an ordinary user.
class Quarantine : public testing::TestWithParam<Runner> {
 protected:
  static ChildEnd run(const std::function<std::string()>& body) { return quarantined(GetParam(), body); }
};
INSTANTIATE_TEST_SUITE_P(Users, Quarantine, testing::Values(&in_child, &in_ordinary_child));

TEST_P(Quarantine, has_no_capability_and_a_filter) {
  const std::string none = "0000000000000000";
  auto end = run([] {
    return status_line("CapInh") + status_line("CapPrm") + status_line("CapEff") + status_line("CapAmb") +
           status_line("NoNewPrivs") + status_line("Seccomp");
  });
  EXPECT_EQ(end.said, none + none + none + none + "12");
}

TEST_P(Quarantine, has_no_network) {
  auto end = run([] {
    std::string said;
    for (int family : {AF_INET, AF_INET6, AF_UNIX, AF_NETLINK})
      said += ::socket(family, SOCK_STREAM, 0) >= 0 ? "worked " : "";
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0) said += "pair";
    return said + "none";
  });
  EXPECT_EQ(end.said, "none");
}

TEST_P(Quarantine, has_no_child_process) {
  EXPECT_EQ(run([] { return std::to_string(::fork()); }).said, "-1");
  EXPECT_EQ(run([] { return std::to_string(WEXITSTATUS(::system("true"))); }).said, "127");
  EXPECT_EQ(run([] { return std::to_string(::execl("/bin/true", "true", nullptr)); }).term_signal, SIGSYS);
}

TEST_P(Quarantine, still_has_threads) {
  auto end = run([] {
    int seen = 0;
    std::thread([&] { seen = 7; }).join();
    return std::to_string(seen);
  });
  EXPECT_EQ(end.said, "7");
}

TEST_P(Quarantine, writes_no_file) {
  char path[] = "/tmp/isogate-quarantine-XXXXXX";
  const int fd = ::mkstemp(path);
  ASSERT_GE(fd, 0);
  auto end = run([fd] { return std::to_string(::write(fd, "x", 1)); });
  EXPECT_EQ(end.term_signal, SIGXFSZ);
  struct stat info {};
  EXPECT_EQ(::fstat(fd, &info), 0);
  EXPECT_EQ(info.st_size, 0);
  ::close(fd);
  ::unlink(path);
}

TEST_P(Quarantine, has_small_limits) {
  auto end = run([] {
    std::string said;
    for (int resource : {RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_NOFILE}) {
      rlimit limit{};
      ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
      said += std::to_string(limit.rlim_cur) + " ";
    }
    return said;
  });
  EXPECT_EQ(end.said, "0 5 0 256 ");
}

TEST_P(Quarantine, a_busy_loop_ends_by_itself) {
  auto end = run([] {
    for (volatile bool busy = true; busy;) {
    }
    return std::string();
  });
  EXPECT_TRUE(end.term_signal == SIGXCPU || end.term_signal == SIGKILL) << end.term_signal;
}

TEST(QuarantineOfRoot, is_uid_nobody_in_a_network_of_its_own) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become nobody";
  struct stat outside {};
  ASSERT_EQ(::stat("/proc/self/ns/net", &outside), 0);
  auto end = quarantined(&in_child, [] {
    struct stat inside {};
    ::stat("/proc/self/ns/net", &inside);
    return status_line("Uid") + "|" + status_line("Groups") + "|" + status_line("CapBnd") + "|" +
           std::to_string(inside.st_ino);
  });
  EXPECT_TRUE(end.said.starts_with("65534\t65534\t65534\t65534||0000000000000000|")) << end.said;
  EXPECT_FALSE(end.said.ends_with(std::to_string(outside.st_ino))) << end.said;
}

}  // namespace
}  // namespace isogate::test
