// Pods that a Job or a Sandbox of agents.x-k8s.io makes: they keep the promises of a bare pod.
#include "plugins/k8s/pod/provision.h"

#include <nlohmann/json.hpp>

#include "plugins/k8s/record.h"
#include "tests/k8s/on_cluster.h"
#include "tests/support/program.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using testing::HasSubstr;

Json some_pod(const Config& config) {
  Parts parts;
  parts.owner = {"instance", "k8s", "isg-a"};
  parts.lease_uid = "u";
  parts.pod = parts.claim = "isg-a-1";
  return pod_of(config, parts, limits_of(config, {}));
}

TEST(K8sProvision, AJobHoldsThePodAndItsEnds) {
  const Config config =
      parse_config(R"({"provision": "job", "max_lifetime_sec": 60, "job_backoff_limit": 2})");
  const Json pod = some_pod(config), job = maker_of(config, pod);
  EXPECT_EQ(job.at("metadata"), pod.at("metadata")) << "the name and owner that the Lease has";
  const Json& spec = job.at("spec");
  EXPECT_EQ(spec.at("backoffLimit"), 2);
  EXPECT_EQ(spec.at("ttlSecondsAfterFinished"), 300);
  EXPECT_EQ(spec.at("activeDeadlineSeconds"), 60);
  const Json& held = spec.at("template");
  EXPECT_EQ(held.at("metadata").at("labels"), pod.at("metadata").at("labels"));
  EXPECT_FALSE(held.at("metadata").contains("ownerReferences"));
  Json expected = pod.at("spec");
  expected.erase("activeDeadlineSeconds");
  EXPECT_EQ(held.at("spec"), expected);
  EXPECT_EQ(held.at("spec").at("restartPolicy"), "Never");
}

TEST(K8sProvision, ASandboxHoldsThePod) {
  const Config config = parse_config(R"({"provision": "sandbox", "max_lifetime_sec": 60})");
  const Json pod = some_pod(config), sandbox = maker_of(config, pod);
  EXPECT_EQ(sandbox.at("apiVersion"), "agents.x-k8s.io/v1beta1");
  EXPECT_EQ(sandbox.at("metadata"), pod.at("metadata"));
  const Json& held = sandbox.at("spec").at("podTemplate");
  EXPECT_EQ(held.at("metadata").at("labels"), pod.at("metadata").at("labels"));
  EXPECT_EQ(held.at("spec"), pod.at("spec")) << "with its activeDeadlineSeconds";
}

TEST(K8sProvision, ABarePodMakesItself) {
  const Config config;
  EXPECT_EQ(maker_of(config, some_pod(config)), some_pod(config));
}

TEST(K8sProvision, WhatWillBeCreatedIsOnlyInTheRecord) {
  Record record;
  record.pod = "old";
  record.object_uid = "old";
  record.claim = "kept";
  name_pod(record, Provision::kJob, "new");
  EXPECT_EQ(record.kind, Provision::kJob);
  EXPECT_EQ(record.object, "new");
  EXPECT_EQ(record.pod + record.pod_uid + record.object_uid, "");
  EXPECT_EQ(record.claim, "kept");
  name_pod(record, Provision::kPod, "newer");
  EXPECT_EQ(record.pod, "newer");
  EXPECT_EQ(record.object, "");
}

class K8sProvisioned : public OnCluster {
 protected:
  static const char* plural_of(const std::string& provision) {
    return provision == "job" ? "jobs" : "sandboxes";
  }
  test::GatewayOptions with(const std::string& provision, const std::string& more = {}) const {
    return options("provision: " + provision, more);
  }
};

using K8sJob = K8sProvisioned;

class K8sSandboxObject : public K8sProvisioned {};

// Before the other tests, which install it.
TEST_F(K8sSandboxObject, ItsDefinitionThatIsNotThereIsNamed) {
  const Resource definition{"apiextensions.k8s.io/v1", "", "customresourcedefinitions",
                            "sandboxes.agents.x-k8s.io"};
  try {
    api_->remove(definition, Json(), usual());
  } catch (const NetError& error) {
    ASSERT_EQ(error.status(), ISOGATE_NOT_FOUND) << error.what();
  }
  EXPECT_TRUE(eventually(20, [&] {
    try {
      api_->list(resource("sandboxes"), {}, usual());
      return false;
    } catch (const NetError& error) {
      return error.http_status() == 404;
    }
  }));
  const std::string text = detail_of(with("sandbox"));
  EXPECT_THAT(text, HasSubstr("no CustomResourceDefinition sandboxes of agents.x-k8s.io/v1beta1"));
}

class K8sMaker : public K8sProvisioned, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    OnCluster::SetUp();
    if (IsSkipped() || GetParam() != std::string("sandbox")) return;
    install_agents();
  }
  std::string provision() const { return GetParam(); }
  std::string plural() const { return plural_of(provision()); }
};

TEST_P(K8sMaker, APodDeletedInTheMiddleOfAnExecIsReportedAtOnceAndRecreated) {
  Gateway gateway(with(provision()));
  const Caller me(gateway, "a");
  ASSERT_EQ(me.run("echo mine > kept; echo gone > /tmp/mark").at("exit_code"), 0);
  const Json first = pod(), its = only(plural());
  EXPECT_TRUE(belongs_to(first, uid_of(its)));
  EXPECT_TRUE(belongs_to(its, uid_of(all("leases").at(0))));
  const auto stream = started(me, "sleep 60");
  const double took = test::seconds_of([&] {
    api_->remove(resource("pods", name_of(first)), Json(), usual());
    const auto events = stream->rest();
    EXPECT_EQ(events.back().at("outcome"), "unknown") << events.back();
    EXPECT_THAT(events.back().dump(), HasSubstr("its pod was deleted"));
  });
  EXPECT_LT(took, 5.0);
  const Json again = me.run("cat kept; ls /tmp", {{"timeout_sec", 120}});
  EXPECT_EQ(test::bytes_of(again, "stdout"), "mine\n") << "a fresh pod, the same files: " << again;
  EXPECT_NE(uid_of(only(plural())), uid_of(its)) << "not the pod that a controller made by itself";
  EXPECT_TRUE(belongs_to(pod(), uid_of(only(plural()))));
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  expect_nothing_left();
}

TEST_P(K8sMaker, AKilledGatewayReattachesItsPod) {
  Gateway first(with(provision()));
  ASSERT_EQ(Caller(first, "a").run("echo here > /tmp/mark").at("exit_code"), 0);
  const std::string uid = uid_of(pod());
  first.kill();
  Gateway second(after(first, with(provision())));
  EXPECT_EQ(Caller(second, "a").out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(pod()), uid);
  second.stop();
  for (const std::string& each : {plural(), std::string("pods")})
    EXPECT_TRUE(eventually(kGone, [&] { return all(each).empty(); })) << each;
  EXPECT_EQ(all("persistentvolumeclaims").size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(All, K8sMaker, testing::Values("job", "sandbox"),
                         [](const auto& each) { return std::string(each.param); });

// The state that a gateway leaves which was killed between the record and the Job's pod.
TEST_F(K8sJob, WhatWasBeingMadeIsFoundByItsName) {
  auto gateway = std::make_unique<Gateway>(with("job"));
  ASSERT_EQ(Caller(*gateway, "a").run("echo mine > kept").at("exit_code"), 0);
  const Json before = only("jobs");
  gateway->kill();
  Json lease = all("leases").at(0);
  Record record = read_record(lease);
  EXPECT_EQ(record.kind, Provision::kJob);
  EXPECT_EQ(record.object_uid, uid_of(before));
  name_pod(record, Provision::kJob, name_of(before));
  write_record(lease, record, "", std::chrono::seconds(1));
  api_->replace(resource("leases", name_of(lease)), lease, usual());
  Gateway second(after(*gateway, with("job")));
  EXPECT_EQ(Caller(second, "a").out("cat kept"), "mine\n");
  EXPECT_NE(uid_of(only("jobs")), uid_of(before));
  EXPECT_TRUE(belongs_to(pod(), uid_of(only("jobs"))));
}

// An object is removed as what it was created, whatever is configured now.
TEST_F(K8sJob, AnotherProvisionRecreatesThePod) {
  auto first = std::make_unique<Gateway>(with("job", "on_shutdown: keep"));
  ASSERT_EQ(Caller(*first, "a").run("echo mine > kept").at("exit_code"), 0);
  first->stop();
  ASSERT_EQ(all("jobs").size(), 1u);
  Gateway second(after(*first, options()));
  EXPECT_EQ(Caller(second, "a").out("cat kept"), "mine\n");
  EXPECT_TRUE(all("jobs").empty());
  EXPECT_TRUE(belongs_to(pod(), uid_of(all("leases").at(0))));
}

TEST_F(K8sJob, AMissingImageIsReportedAtOnceAndLeavesNothing) {
  auto absent = with("job");
  const std::string image = "isogate-test:base";
  absent.yaml.replace(absent.yaml.find(image), image.size(), "isogate-test:absent");
  EXPECT_THAT(refusal_of(absent), HasSubstr("ErrImageNeverPull"));
  expect_nothing_left();
}

TEST_F(K8sJob, RightsAreAskedForOnlyWhereTheyAreNeeded) {
  EXPECT_THAT(detail_of(options("namespace: default, provision: job")),
              HasSubstr("create jobs, delete jobs"));
  EXPECT_THAT(detail_of(options("namespace: default")), testing::Not(HasSubstr("jobs")));
}

}  // namespace
}  // namespace isogate::k8s
