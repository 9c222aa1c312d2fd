// What the Engine reports by itself, without a call.
#include "tests/docker/gateways.h"

namespace isogate::docker {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kTold = "of a sandbox: its container";

class WatchOn : public OnEngine, public testing::WithParamInterface<const char*> {
 protected:
  WatchOn()
      : OnEngine(GetParam(), GetParam() == std::string("ISOGATE_TEST_PODMAN") ? "podman.sh" : "docker.sh") {}
};

TEST_P(WatchOn, AContainerThatEndsIsReportedAtOnce) {
  Gateway gateway(options());
  const Caller me(gateway, "a"), other(gateway, "b");
  other.run("true");
  ASSERT_TRUE(succeeded(me.write("kept", "still here")));
  engine_->kill(container_of(gateway, "a"), "KILL", usual());
  EXPECT_TRUE(gateway.logs("of a sandbox: its container ended with exit code 137", 10)) << gateway.log();
  EXPECT_EQ(me.out("cat kept"), "still here");
  EXPECT_THAT(gateway.log(), HasSubstr("recreated (its container ended with exit code 137)"));
  EXPECT_EQ(other.out("echo fine"), "fine\n");
  // Its replacement is watched, too.
  engine_->remove(container_of(gateway, "a"), usual());
  EXPECT_TRUE(eventually(10, [&] {
    const std::string log = gateway.log();
    return log.find(kTold, log.find("recreated")) != std::string::npos;
  })) << gateway.log();
}

// The Engine still reports out of memory when a child was killed long before.
TEST_P(WatchOn, WhatEndsLongAfterAChildWasOutOfMemoryIsNotSaidToHaveEndedOfIt) {
  Gateway gateway(options("memory_mb: 64"));
  const Caller me(gateway, "a");
  EXPECT_EQ(me.run("python3 -c 'x = bytearray(10**9)'").at("outcome"), "oom_killed");
  EXPECT_EQ(me.out("echo fine"), "fine\n");
  engine_->kill(container_of(gateway, "a"), "KILL", usual());
  EXPECT_TRUE(gateway.logs("of a sandbox: its container ended with exit code 137", 10)) << gateway.log();
  EXPECT_EQ(me.out("echo back"), "back\n");
  const std::string log = gateway.log();
  EXPECT_THAT(log, Not(HasSubstr("it was out of memory")));
  if (GetParam() == std::string("ISOGATE_TEST_DOCKER")) {
    EXPECT_THAT(log, HasSubstr("recreated (its container ended with exit code 137; the Engine saw it out of "
                               "memory at some time)"));
  }
}

TEST_P(WatchOn, ACallInFlightSaysOnceHowItsContainerEnded) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  test::ExecStream stream(me, {{"command", "trap '' TERM; echo up; sleep 60"}});
  ASSERT_EQ(stream.next()->at("event"), "start");
  ASSERT_EQ(stream.next()->at("event"), "stdout") << "it runs";
  engine_->kill(container_of(gateway, "a"), "KILL", usual());
  const Json last = stream.rest().back();
  EXPECT_NE(last.at("outcome"), "exited") << last;
  const std::string said = last.dump();
  EXPECT_THAT(said, HasSubstr("container"));
  EXPECT_EQ(said.find("its container"), said.rfind("its container")) << said;
  EXPECT_EQ(me.out("echo back"), "back\n");
}

TEST_P(WatchOn, WhatTheGatewayEndsItselfIsNoNews) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  me.run("true");
  const double took = test::seconds_of([&] { gateway.stop(); });
  EXPECT_LT(took, 20);
  EXPECT_THAT(gateway.log(), Not(HasSubstr(kTold)));
}

INSTANTIATE_TEST_SUITE_P(Each, WatchOn, testing::Values("ISOGATE_TEST_DOCKER", "ISOGATE_TEST_PODMAN"),
                         [](const auto& each) {
                           return each.param == std::string("ISOGATE_TEST_PODMAN") ? "podman" : "docker";
                         });

}  // namespace
}  // namespace isogate::docker
