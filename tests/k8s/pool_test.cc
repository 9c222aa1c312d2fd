// Pods made ahead, on a real cluster.
#include <set>

#include "tests/k8s/on_cluster.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using test::GatewayOptions;

class K8sPool : public OnCluster {
 protected:
  // A test that reads how many are ready must see changes soon.
  GatewayOptions warm(int size, const std::string& more = {}) const {
    return options("warm_pool: " + std::to_string(size), "probe_interval_sec: 1\n" + more);
  }
  static bool are_ready(const Gateway& gateway, int count) {
    const std::string said =
        std::to_string(count) + " of " + std::to_string(count) + " sandboxes ready ahead";
    return eventually(
        60, [&] { return Caller(gateway, "nobody").get("/backends").text.find(said) != std::string::npos; });
  }
  [[nodiscard]] std::set<std::string> uids() const {
    std::set<std::string> found;
    for (const Json& each : live("pods")) found.insert(uid_of(each));
    return found;
  }
  // The uid of the pod that the agent's Lease records.
  [[nodiscard]] std::string taken_by(const Caller& caller) const {
    const Json lease = api_->get(resource("leases", id_of(caller)), usual());
    return Json::parse(lease.at("metadata").at("annotations").at(kRecord).get<std::string>()).at("pod_uid");
  }
};

TEST_F(K8sPool, ANewAgentTakesWhatIsReadyAndAnotherIsMade) {
  Gateway gateway(warm(2));
  ASSERT_TRUE(are_ready(gateway, 2));
  const auto before = uids();
  ASSERT_EQ(before.size(), 2u);
  const Caller a(gateway, "a"), b(gateway, "b");
  EXPECT_EQ(a.out("ls -A; echo a > mine; cat mine"), "a\n");
  EXPECT_EQ(b.out("ls -A; echo b > mine; cat mine"), "b\n");
  EXPECT_TRUE(before.contains(taken_by(a)));
  EXPECT_TRUE(before.contains(taken_by(b)));
  EXPECT_NE(taken_by(a), taken_by(b));
  const Json row = a.get("/sandboxes").body.at("sandboxes").at(0);
  EXPECT_EQ(row.at("isolation"), "container") << row;
  EXPECT_TRUE(eventually(60, [&] { return uids().size() == 4; }));
  EXPECT_EQ(a.get("/sandboxes").body.at("sandboxes").size(), 2u) << "ready pods are no sandboxes";
}

TEST_F(K8sPool, ATakenPodIsRecreatedOnItsOwnWorkspaceAndAPurgeLeavesNothing) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  GatewayOptions settings = warm(1);
  test::TemporaryDirectory state("/var/tmp");
  settings.state_dir = state.path();
  {
    Gateway gateway(settings);
    ASSERT_TRUE(are_ready(gateway, 1));
    const Caller me(gateway, "a");
    ASSERT_TRUE(succeeded(me.write("kept", "still here")));
    const std::string uid = taken_by(me);
    for (const Json& each : all("pods"))
      if (uid_of(each) == uid) remove("pods", name_of(each));
    EXPECT_TRUE(eventually(20, [&] { return me.content("kept") == "still here"; }));
    EXPECT_NE(taken_by(me), uid);
  }
  EXPECT_TRUE(eventually(kGone, [&] { return all("pods").empty(); })) << "what replaced it runs on";
  settings.yaml = options().yaml;
  Gateway gateway(settings);
  const Caller me(gateway, "a");
  EXPECT_EQ(me.content("kept"), "still here") << "after a stop of the gateway";
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  expect_nothing_left();
}

TEST_F(K8sPool, ItEndsWithTheGateway) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(warm(2));
  ASSERT_TRUE(are_ready(gateway, 2));
  gateway.stop();
  expect_nothing_left();
}

TEST_F(K8sPool, ADeadOneIsReplaced) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(warm(1));
  ASSERT_TRUE(are_ready(gateway, 1));
  const Json dead = pod();
  remove("pods", name_of(dead));
  EXPECT_TRUE(eventually(60, [&] {
    const auto now = uids();
    return now.size() == 1 && !now.contains(uid_of(dead));
  }));
  ASSERT_TRUE(are_ready(gateway, 1));
  EXPECT_EQ(Caller(gateway, "a").out("echo works"), "works\n");
}

TEST_F(K8sPool, ItFollowsTheLimitsThatAreAskedFor) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gateway(options("warm_pool: 1", "probe_interval_sec: 1", "limits: {memory_mb: 128}"));
  ASSERT_TRUE(are_ready(gateway, 1));
  const std::string ready = uid_of(pod());
  EXPECT_NE((Caller(gateway, "a").run("true"), taken_by(Caller(gateway, "a"))), ready);
  Caller(gateway, "b").run("true");
  EXPECT_TRUE(eventually(60, [&] { return !uids().contains(ready) && uids().size() == 3; }));
  ASSERT_TRUE(are_ready(gateway, 1));
  const auto now = uids();
  const Caller c(gateway, "c");
  c.run("true");
  EXPECT_TRUE(now.contains(taken_by(c)));
}

// Two gateways of one instance, and what one of them would remove as a leftover.
TEST_F(K8sPool, WhatAKilledGatewayHadReadyIsRemovedWhenItsLeaseHasExpired) {
  Gateway killed(warm(1, "on_shutdown: keep"));
  ASSERT_TRUE(are_ready(killed, 1));
  const Json left = pod();
  kill_with_host(killed);
  const Json lease = all("leases").at(0);
  EXPECT_EQ(lease.at("metadata").at("labels").at(kLabelAhead), "ready");
  {
    Gateway other(warm(1, "on_shutdown: keep"));
    ASSERT_TRUE(are_ready(other, 1));
    EXPECT_TRUE(uids().contains(uid_of(left))) << "another gateway may still use it";
  }
  let_expire(name_of(lease));
  Gateway last(options());
  EXPECT_TRUE(eventually(kGone, [&] { return uids().empty(); }));
}

}  // namespace
}  // namespace isogate::k8s
