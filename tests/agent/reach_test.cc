// What isogate-runner does besides serving: it reports which addresses answer, and copies itself.
#include "runner/agent/reach.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "lib/fd.h"
#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::agent {
namespace {

constexpr const char* kRunner = ISOGATE_BUILD_DIR "/bin/isogate-runner";

struct Listener {
  Listener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
    port = ntohs(address.sin_port);
  }
  Fd socket;
  uint32_t port = 0;
};

TEST(Reach, DistinguishesPeersThatAnswerAndRefuse) {
  const Listener open, closed;
  ASSERT_EQ(::listen(open.socket.get(), 1), 0);
  EXPECT_EQ(reach({{"127.0.0.1", open.port}, {"127.0.0.1", closed.port}}),
            (std::vector<Reached>{Reached::connected, Reached::refused}));
  const std::string target = "127.0.0.1:" + std::to_string(closed.port);
  const test::ProgramResult told = test::run_program({kRunner, "reach", target});
  EXPECT_EQ(told.exit_code, 10);
  EXPECT_EQ(told.out, target + " refused\n");
  EXPECT_EQ(test::run_program({kRunner, "reach"}).exit_code, 0);
  EXPECT_EQ(test::run_program({kRunner, "reach", "localhost:80"}).exit_code, 2);
}

TEST(Reach, ReadsTargets) {
  const auto targets =
      parse_targets({"10.0.0.1:443", "[fd00::1]:80", "hop:10250"}, {"192.168.1.1", "fe80::1%eth0"});
  ASSERT_TRUE(targets);
  ASSERT_EQ(targets->size(), 4u);
  EXPECT_EQ((*targets)[1].address, "fd00::1");
  EXPECT_EQ((*targets)[2].address, "192.168.1.1");
  EXPECT_EQ((*targets)[2].port, 10250u);
  EXPECT_EQ((*targets)[3].address, "fe80::1%eth0");
  EXPECT_TRUE(parse_targets({"hop:1"}, {})->empty()) << "no route, no hop";
  for (const char* odd : {"", "10.0.0.1", "10.0.0.1:0", "10.0.0.1:99999", "a:1", ":1", "10.0.0.1:1x"})
    EXPECT_FALSE(parse_targets({odd}, {})) << odd;
}

TEST(Reach, FindsTheFirstHops) {
  const char* const routes =
      "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
      "eth0\t00000000\t010011AC\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
      "eth0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
  EXPECT_EQ(first_hops(routes, ""), std::vector<std::string>{"172.17.0.1"});
  const std::string none(32, '0'), rest = " 00000400 00000001 00000000 00000003     eth0\n";
  EXPECT_EQ(first_hops("", none + " 00 " + none + " 00 fd000000000000000000000000000001" + rest + none +
                               " 00 " + none + " 00 fe800000000000000000000000000001" + rest + none + " 00 " +
                               none + " 00 " + none + rest + "fd000000000000000000000000000000 40 " + none +
                               " 00 " + none + rest),
            (std::vector<std::string>{"fd00::1", "fe80::1%eth0"}));
  EXPECT_TRUE(first_hops("", "").empty());
  EXPECT_TRUE(first_hops("x\n\ny 00000000\nz 00000000 zz\n", "x\n\n").empty());
}

TEST(Install, CopiesTheProgramItself) {
  const test::TemporaryDirectory directory;
  for (int twice = 0; twice < 2; ++twice)
    ASSERT_EQ(test::run_program({kRunner, "install", directory.path()}).exit_code, 0);
  const std::string copy = directory.path() + "/isogate-runner";
  struct stat info {};
  ASSERT_EQ(::stat(copy.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0111u) << "whoever may read it may trace it as it starts";
  ASSERT_EQ(::stat((directory.path() + "/closed").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0u) << "what is mounted in there is for nobody";
  EXPECT_EQ(::chmod((directory.path() + "/closed").c_str(), 0700), 0);
  EXPECT_EQ(::stat((directory.path() + "/closed/termination-log").c_str(), &info), 0);
  EXPECT_EQ(test::run_program({copy, "version"}).out, test::run_program({kRunner, "version"}).out);
  EXPECT_EQ(test::run_program({kRunner, "install", "/no/such/place"}).exit_code, 1);
  EXPECT_EQ(test::run_program({kRunner, "install"}).exit_code, 2);
}

}  // namespace
}  // namespace isogate::agent
