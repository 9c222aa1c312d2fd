// The life of pods: created, killed, found again, removed.
#include <thread>

#include "plugins/k8s/pod/pods.h"
#include "tests/k8s/on_cluster.h"

namespace isogate::k8s {
namespace {

using test::Answer;
using test::Caller;
using test::eventually;
using test::ExecStream;
using test::Gateway;
using testing::HasSubstr;

class K8sLifecycle : public OnCluster {};

TEST_F(K8sLifecycle, APodDeletedInTheMiddleOfAnExecIsReportedAtOnceAndRecreated) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  ASSERT_EQ(me.run("echo mine > kept; echo gone > /tmp/mark").at("exit_code"), 0);
  const Json first = pod();
  const auto stream = started(me, "sleep 60");
  const double took = test::seconds_of([&] {
    api_->remove(resource("pods", name_of(first)), Json(), usual());
    const auto events = stream->rest();
    EXPECT_EQ(events.back().at("outcome"), "unknown") << events.back();
    EXPECT_TRUE(events.back().at("exit_code").is_null());
    EXPECT_THAT(events.back().dump(), HasSubstr("its pod was deleted"));
  });
  EXPECT_LT(took, 20.0) << "a lost connection is a loss after forty seconds";
  EXPECT_EQ(me.out("cat kept; ls /tmp"), "mine\n") << "a fresh pod, the same files";
  EXPECT_NE(uid_of(pod()), uid_of(first));
}

TEST_F(K8sLifecycle, AKilledGatewayReattachesItsPod) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_EQ(Caller(*first, "a").run("echo here > /tmp/mark").at("exit_code"), 0);
  const std::string uid = uid_of(pod());
  first->kill();
  Gateway second(after(*first, options()));
  EXPECT_EQ(Caller(second, "a").out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(pod()), uid);
}

TEST_F(K8sLifecycle, ProgramsOfAKilledGatewayDoNotRunNextToThoseOfTheNext) {
  auto first = std::make_unique<Gateway>(options());
  const Caller me(*first, "a");
  const auto stream = started(me, "while :; do date +%s%N > beat; sleep 0.1; done");
  first->kill();
  Gateway second(after(*first, options()));
  const Caller after(second, "a");
  after.run("true");
  EXPECT_EQ(after.out("a=$(cat beat); sleep 1; [ \"$a\" = \"$(cat beat)\" ] && echo still"), "still\n");
}

TEST_F(K8sLifecycle, SigtermLeavesNoPodAndKeepsTheWorkspace) {
  auto first = std::make_unique<Gateway>(options());
  for (const char* agent : {"a", "b"})
    ASSERT_EQ(Caller(*first, agent).run(std::string("echo ") + agent + " > kept").at("exit_code"), 0);
  first->stop();
  // The API server keeps the object of a pod for a while after its end.
  for (const Json& each : all("pods")) EXPECT_TRUE(state_of(each).stopped) << each.at("status");
  EXPECT_TRUE(eventually(kGone, [&] { return all("pods").empty(); }));
  EXPECT_EQ(all("persistentvolumeclaims").size(), 2u);
  Gateway second(after(*first, options()));
  EXPECT_EQ(Caller(second, "a").out("cat kept"), "a\n");
}

TEST_F(K8sLifecycle, APurgeLeavesNothing) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo x > file");
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  expect_nothing_left();
  EXPECT_EQ(me.out("ls -A"), "");
}

TEST_F(K8sLifecycle, WhatOnlyCarriesTheLabelsIsKept) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const std::string id = id_of(me);
  const Json own = pod().at("spec");  // the namespace admits no pod without such contexts
  Json planted = {{"apiVersion", "v1"},
                  {"kind", "Pod"},
                  {"metadata", {{"name", id + "-00000000"}, {"labels", pod().at("metadata").at("labels")}}},
                  {"spec",
                   {{"terminationGracePeriodSeconds", 0},
                    {"securityContext", own.at("securityContext")},
                    {"containers",
                     {{{"name", kContainer},
                       {"image", "isogate-test:small"},
                       {"securityContext", own.at("containers").at(0).at("securityContext")},
                       {"imagePullPolicy", "Never"},
                       {"command", {"sleep", "600"}}}}}}}};
  planted = api_->create(resource("pods"), planted, usual());
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(me.out("echo mine; ls /run/isogate/bin"), "mine\nclosed\nisogate-runner\n")
      << "it was used as the sandbox";
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  const Json there = api_->get(resource("pods", name_of(planted)), usual());
  EXPECT_EQ(uid_of(there), uid_of(planted));
  EXPECT_FALSE(there.at("metadata").contains("deletionTimestamp"));
}

TEST_F(K8sLifecycle, ALeaseOfSomebodyElseRefusesTheSandbox) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("true");
  const std::string id = id_of(me);
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  ASSERT_TRUE(eventually(kGone, [&] { return all("leases").empty(); }));
  const Json lease = {
      {"apiVersion", "coordination.k8s.io/v1"}, {"kind", "Lease"}, {"metadata", {{"name", id}}}};
  api_->create(resource("leases"), lease, usual());
  const Answer answer = me.exec("true");
  remove("leases", id);
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("did not make"));
  EXPECT_EQ(me.out("echo works"), "works\n");
}

TEST_F(K8sLifecycle, TwoGatewaysServeOneAgentInOnePod) {
  Gateway one(options("", "on_shutdown: keep")), two(options("", "on_shutdown: keep"));
  std::string of_two;
  std::thread at_once([&] { of_two = Caller(two, "a").out("echo two > two; hostname"); });
  const std::string of_one = Caller(one, "a").out("echo one > one; hostname");
  at_once.join();
  EXPECT_EQ(of_one, of_two);
  const std::string uid = uid_of(pod());
  EXPECT_EQ(Caller(one, "a").out("cat one two"), "one\ntwo\n");
  EXPECT_EQ(Caller(two, "a").out("cat one two"), "one\ntwo\n");
  // The pod of both is removed; the first gateway creates a new one, the other re-attaches to it.
  remove("pods", name_of(pod()));
  EXPECT_TRUE(eventually(30, [&] { return Caller(one, "a").exec("true").status == 200; }));
  EXPECT_TRUE(eventually(30, [&] { return Caller(two, "a").exec("true").status == 200; }));
  EXPECT_NE(uid_of(pod()), uid);
  EXPECT_EQ(Caller(two, "a").out("cat one two"), "one\ntwo\n");
}

TEST_F(K8sLifecycle, AnEmptyDirIsLostWithItsPod) {
  Gateway gateway(options("workspace: empty_dir"));
  const Caller me(gateway, "a"), other(gateway, "b");
  ASSERT_TRUE(succeeded(me.write("file", "x")));
  ASSERT_TRUE(succeeded(other.write("file", "y")));
  const std::string id = id_of(me);
  for (const Json& each : all("pods"))
    if (each.at("metadata").at("labels").at(kLabelSandbox) == id) remove("pods", name_of(each));
  EXPECT_TRUE(eventually(10, [&] { return me.exec("true").status == 410; }));
  EXPECT_TRUE(refused(me.exec("touch ran"), 410, "sandbox_lost"));
  EXPECT_TRUE(refused(me.read("file"), 410, "sandbox_lost"));
  EXPECT_EQ(other.content("file"), "y");
  EXPECT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a")));
  EXPECT_EQ(me.out("ls -A; echo fresh"), "fresh\n");
}

TEST_F(K8sLifecycle, ATenantThatKillsAllItMayCostsOnlyWhatItKilled) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo here > /tmp/mark");
  const std::string uid = uid_of(pod());
  const Answer answer = me.exec("kill -9 -1; sleep 5");
  EXPECT_NE(answer.status, 500) << answer.text;
  EXPECT_EQ(me.exec("true").status, 200) << "its stream is reconnected, and the runner is the first process";
  EXPECT_EQ(me.out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(pod()), uid);
}

TEST_F(K8sLifecycle, AnExecGoesOnWhenItsStreamIsKilledInside) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  EXPECT_EQ(
      me.out("echo before; pkill -9 -f '[i]sogate-runner attach'; sleep 1; seq 100000 | wc -l; echo after"),
      "before\n100000\nafter\n");
}

TEST_F(K8sLifecycle, ATenantCannotAttach) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  EXPECT_THAT(me.out("/run/isogate/bin/isogate-runner attach 2>&1 < /dev/null; echo $?"),
              HasSubstr("the server refuses this process\n1\n"));
  EXPECT_EQ(me.exec("true").status, 200);
}

TEST_F(K8sLifecycle, AnEvictedPodSaysSo) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  me.run("echo mine > kept");
  ExecStream stream(me, {{"command", "head -c 400M /dev/zero > /tmp/big; sleep 120"}, {"timeout_sec", 130}},
                    130);
  const auto events = stream.rest();
  EXPECT_EQ(events.back().at("outcome"), "unknown") << events.back();
  // A current kubelet writes nothing more into the status of a pod whose containers succeeded.
  EXPECT_TRUE(eventually(60, [&] {
    const std::string log = gateway.log();
    return log.find("Evicted") != std::string::npos || log.find("was stopped (evicted") != std::string::npos;
  })) << gateway.log();
  EXPECT_EQ(me.out("cat kept; ls /tmp"), "mine\n");
}

}  // namespace
}  // namespace isogate::k8s
