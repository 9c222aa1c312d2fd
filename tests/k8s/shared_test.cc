// The users of a pod: several gateways, one that was killed, an exec for each call.
#include <algorithm>
#include <thread>

#include "plugins/k8s/pod/pods.h"
#include "tests/k8s/on_cluster.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;

class K8sShared : public OnCluster {
 protected:
  [[nodiscard]] bool nothing_runs(double seconds) const {
    return eventually(seconds, [&] {
      const auto pods = all("pods");
      return std::all_of(pods.begin(), pods.end(), [](const Json& each) { return state_of(each).ended; });
    });
  }
  [[nodiscard]] std::vector<Json> presences() const {
    const std::string selector =
        std::string(kLabelInstance) + "=" + instance_ + "," + kLabelGateway + "=true";
    return api_->list(resource("leases"), {selector, "", 500}, usual()).at("items");
  }
};

TEST_F(K8sShared, WhatAKilledGatewayHadOpenIsReattachedWithoutACallAndStoppedWhenItIsIdle) {
  Gateway killed(options());
  ASSERT_EQ(Caller(killed, "a").run("echo mine > kept").at("exit_code"), 0);
  const std::string uid = uid_of(pod());
  kill_with_host(killed);
  EXPECT_EQ(uid_of(pod()), uid);
  Gateway next(after(killed, options("", "sandbox_idle_timeout_sec: 4")));
  EXPECT_TRUE(next.logs("sandbox_reattached", 20));
  EXPECT_TRUE(nothing_runs(40)) << next.log();
  EXPECT_EQ(Caller(next, "a").out("cat kept"), "mine\n");
  next.stop();
  EXPECT_TRUE(presences().empty());
}

TEST_F(K8sShared, AnIdleStopOfOneGatewayLeavesWhatAnotherOneUses) {
  Gateway idle(options("", "sandbox_idle_timeout_sec: 2")), other(options("", "sandbox_idle_timeout_sec: 0"));
  ASSERT_EQ(Caller(other, "a").run("true").at("exit_code"), 0);
  ASSERT_EQ(Caller(idle, "a").run("true").at("exit_code"), 0);
  const std::string uid = uid_of(pod());
  EXPECT_EQ(presences().size(), 2u);
  EXPECT_EQ(Caller(other, "a").run("sleep 7; echo mine > kept").at("exit_code"), 0);
  EXPECT_EQ(uid_of(pod()), uid);
  EXPECT_EQ(Caller(idle, "a").out("cat kept"), "mine\n");
  // The last gateway that uses it ends it.
  EXPECT_TRUE(succeeded(Caller(other, "a").call("DELETE", "/sandboxes/a")));
  EXPECT_TRUE(nothing_runs(40));
  EXPECT_EQ(Caller(other, "a").out("cat kept"), "mine\n");
}

TEST_F(K8sShared, WhatAnotherGatewayHasPurgedAndBegunAgainCanStillBePurged) {
  Gateway one(options()), two(options());
  const Caller first(one, "a"), second(two, "a");
  ASSERT_EQ(first.run("true").at("exit_code"), 0);
  ASSERT_TRUE(succeeded(first.call("DELETE", "/sandboxes/a")));
  ASSERT_EQ(second.run("true").at("exit_code"), 0);
  ASSERT_TRUE(succeeded(second.call("DELETE", "/sandboxes/a?purge=true")));
  ASSERT_EQ(second.run("echo its > kept").at("exit_code"), 0);
  EXPECT_TRUE(succeeded(first.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(second.out("cat kept"), "its\n");
  EXPECT_EQ(first.out("cat kept"), "its\n") << "the one of both";
}

TEST_F(K8sShared, AGatewayThatIsGoneKeepsNothingRunning) {
  if (const std::string why = too_long(); !why.empty()) GTEST_SKIP() << why;
  Gateway gone(options());
  ASSERT_EQ(Caller(gone, "a").run("true").at("exit_code"), 0);
  kill_with_host(gone);
  let_expire(name_of(presences().at(0)));
  Gateway other(options("", "sandbox_idle_timeout_sec: 2"));
  ASSERT_EQ(Caller(other, "a").run("true").at("exit_code"), 0);
  EXPECT_TRUE(nothing_runs(40));
}

TEST_F(K8sShared, WhatItsGatewaysDoNotComeBackToIsStoppedByAnother) {
  Gateway gone(options());
  ASSERT_EQ(Caller(gone, "a").run("echo mine > kept").at("exit_code"), 0);
  kill_with_host(gone);
  let_expire(name_of(presences().at(0)));
  Gateway other(options("orphaned_after_sec: 10"));
  EXPECT_FALSE(nothing_runs(3)) << "it is observed twice first";
  EXPECT_TRUE(nothing_runs(120)) << other.log();
  EXPECT_EQ(all("leases").size(), 1u);
  const Caller me(other, "a");
  EXPECT_TRUE(eventually(30, [&] { return me.exec("true").status == 200; })) << "its end is still recorded";
  EXPECT_EQ(me.out("cat kept"), "mine\n");
}

TEST_F(K8sShared, WhatAGatewayKeepsIsNotEndedByAnother) {
  Gateway keeps(options("", "on_shutdown: keep"));
  ASSERT_EQ(Caller(keeps, "a").run("true").at("exit_code"), 0);
  const std::string uid = uid_of(pod());
  keeps.stop();
  EXPECT_EQ(presences().size(), 1u) << "it is expected back";
  Gateway other(options());
  ASSERT_EQ(Caller(other, "a").run("true").at("exit_code"), 0);
  EXPECT_TRUE(succeeded(Caller(other, "a").call("DELETE", "/sandboxes/a")));
  const Json left = pod();
  EXPECT_EQ(uid_of(left), uid);
  EXPECT_FALSE(state_of(left).ended);
  EXPECT_FALSE(left.at("metadata").contains("deletionTimestamp"));
}

TEST_F(K8sShared, AnExecForEachCallLeavesNoneOpenAndRunsEightAtATime) {
  Gateway gateway(options("transport: exec"));
  const Caller me(gateway, "a");
  ASSERT_TRUE(succeeded(me.write("file", "some bytes")));
  EXPECT_EQ(me.content("file"), "some bytes");
  EXPECT_EQ(me.out("exit 3"), "");
  EXPECT_EQ(me.run("exit 3").at("exit_code"), 3);
  // A runner for each running call, with its supervisor, and no other.
  const std::string count =
      "n=0; for f in /proc/[0-9]*/cmdline; do case $(tr '\\0' ' ' < $f) in *isogate-runner\\ stdio*) "
      "n=$((n+1));; "
      "esac; done 2> /dev/null; echo $n";
  EXPECT_TRUE(eventually(10, [&] { return me.out(count) == "2\n"; })) << me.out(count);
  std::vector<std::thread> all;
  std::atomic<int> right{0};
  for (int i = 0; i < 24; ++i)
    all.emplace_back([&, i] {
      test::Answer last;  // a busy node may be late to start a runner: 503, and nothing has run
      const bool ran = eventually(120, [&] {
        last = me.exec("sleep 0.2; echo " + std::to_string(i));
        return last.status != 503;
      });
      if (ran && last.body.value("stdout", "") == std::to_string(i) + "\n")
        ++right;
      else
        ADD_FAILURE() << last.text;
    });
  for (auto& each : all) each.join();
  EXPECT_EQ(right, 24);
  remove("pods", name_of(pod()));
  EXPECT_TRUE(eventually(30, [&] { return me.exec("true").status == 200; }));
  EXPECT_EQ(me.content("file"), "some bytes");
}

}  // namespace
}  // namespace isogate::k8s
