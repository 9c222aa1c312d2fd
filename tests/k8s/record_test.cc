#include "plugins/k8s/record.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/pod_start.h"
#include "plugins/k8s/pod/pods.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {
namespace {

TEST(K8sRecord, ComesBackAsItWas) {
  Record record;
  record.pod = "isg-x-1";
  record.pod_uid = "uid";
  record.kind = Provision::kJob;
  record.object = "isg-x";
  record.object_uid = "uid of it";
  record.image = "tools:1";
  record.measured = true;
  record.proof.emplace();
  record.proof->evidence.struct_size = sizeof(isogate_evidence);
  record.proof->evidence.seccomp_mode = 2;
  record.proof->evidence.ns_pid = 4026533000;
  record.proof->gateway.listeners = "0.0.0.0:80";
  record.likeness = {{"labels", {{"a", "b"}}}};
  Json lease = Json::object();
  write_record(lease, record, "me", std::chrono::seconds(60));
  const Record again = read_record(lease);
  EXPECT_EQ(again.pod, record.pod);
  EXPECT_EQ(again.pod_uid, record.pod_uid);
  EXPECT_EQ(again.kind, record.kind);
  EXPECT_EQ(again.object, record.object);
  EXPECT_EQ(again.object_uid, record.object_uid);
  EXPECT_EQ(again.image, "tools:1");
  EXPECT_TRUE(again.measured);
  EXPECT_EQ(again.likeness, record.likeness);
  ASSERT_TRUE(again.proof);
  EXPECT_EQ(again.proof->gateway, record.proof->gateway);
  EXPECT_EQ(again.proof->evidence.ns_pid, 4026533000u);
  EXPECT_EQ(hold_of(lease).holder, "me");
}

TEST(K8sRecord, AHolderHasAStateDirectoryAndNamesNoHost) {
  const Config config;
  const auto holder_in = [&](const char* directory) {
    isogate_host host{};
    host.struct_size = sizeof host;
    host.sandboxes_dir = sdk::str(directory);
    return Services(sdk::Host(host), config, {}).holder;
  };
  EXPECT_EQ(holder_in("/one"), holder_in("/one"));
  EXPECT_NE(holder_in("/one"), holder_in("/other"));
  EXPECT_EQ(holder_in("/one").find_first_not_of("0123456789abcdef"), std::string::npos);
}

TEST(K8sRecord, KnowsWhereFilesAreOnceATenantMayHaveWrittenThem) {
  Record record;
  record.claim = "isg-x";
  record.claim_uid = "uid";
  EXPECT_FALSE(record.place());
  record.measured = true;
  EXPECT_EQ(record.place(), Place::kClaim);
  record.claim_uid.clear();
  EXPECT_EQ(record.place(), Place::kEmptyDir);
}

TEST(K8sRecord, OneThatLacksAMemberIsDamaged) {
  Json lease = Json::object();
  Record record;
  record.pod = "isg-x-1";
  record.proof.emplace();
  write_record(lease, record, "", std::chrono::seconds(60));
  std::string& text = lease["metadata"]["annotations"][kRecord].get_ref<std::string&>();
  const Json whole = Json::parse(text);
  const auto expect_damaged = [&](const Json& json) {
    text = json.dump();
    EXPECT_THROW((void)read_record(lease), sdk::Error) << text;
  };
  for (const auto& [name, value] : whole.items()) {
    if (name == "evidence") continue;  // nothing was measured
    Json json = whole;
    json.erase(name);
    expect_damaged(json);
  }
  const Json& evidence = whole.at("evidence");
  for (const auto& [name, value] : evidence.items()) {
    Json json = whole;
    json["evidence"].erase(name);
    expect_damaged(json);
  }
  Json json = whole;
  json["kind"] = "deployment";
  expect_damaged(json);
  text = whole.dump();
  EXPECT_EQ(read_record(lease).pod, "isg-x-1");
  EXPECT_EQ(read_record(lease).image, "");
}

TEST(K8sRecord, AHoldIsAnotherOneOnceItIsRenewed) {
  Json lease = {{"metadata", {{"uid", "u"}, {"resourceVersion", "1"}}}};
  write_record(lease, {}, "me", std::chrono::seconds(60));
  const Hold first = hold_of(lease);
  EXPECT_EQ(first.lasts, std::chrono::seconds(60));
  lease["metadata"]["resourceVersion"] = "2";
  EXPECT_NE(hold_of(lease).version, first.version);
  write_record(lease, {}, "", std::chrono::seconds(60));
  EXPECT_EQ(hold_of(lease).holder, "");
  EXPECT_EQ(hold_of(Json::object()).holder, "");
  lease["spec"] = {{"holderIdentity", "me"}, {"leaseDurationSeconds", INT64_MAX}};
  EXPECT_LE(hold_of(lease).lasts, std::chrono::hours(2)) << "nobody holds it forever";
}

TEST(K8sRecord, ADamagedOneIsAnErrorAndNoAbsentOne) {
  for (const char* text : {"", "{}", "[]", "{\"pod\": 1}"}) {
    const Json lease = {{"metadata", {{"annotations", {{kRecord, text}}}}}};
    EXPECT_THROW((void)read_record(lease), sdk::Error) << text;
  }
  EXPECT_THROW((void)read_record(Json::object()), sdk::Error);
}

TEST(K8sRecord, NumbersThatDoNotFitAreDamage) {
  Json lease = Json::object();
  Record record;
  record.proof.emplace();
  write_record(lease, record, "", std::chrono::seconds(60));
  std::string& text = lease["metadata"]["annotations"][kRecord].get_ref<std::string&>();
  const Json whole = Json::parse(text);
  for (const char* place : {"/gateway_port", "/evidence/uid", "/evidence/flags", "/evidence/seccomp_mode"})
    for (const Json& odd : {Json(-1), Json(1.5), Json(true), Json(UINT64_MAX), Json("0"), Json()}) {
      Json json = whole;
      json[Json::json_pointer(place)] = odd;
      text = json.dump();
      EXPECT_THROW((void)read_record(lease), sdk::Error) << place << " " << odd;
    }
  text = whole.dump();
  EXPECT_NO_THROW((void)read_record(lease));
}

TEST(K8sRecord, WhoIsNotUnderstoodHoldsItForAsLongAsCanBe) {
  for (const Json& odd : {Json(7), Json::array({"me"}), Json{{"name", "me"}}, Json(true)}) {
    EXPECT_NE(hold_of({{"spec", {{"holderIdentity", odd}}}}).holder, "") << odd;
    if (!odd.is_object()) {
      EXPECT_NE(hold_of({{"spec", odd}}).holder, "") << odd;
    }
  }
  const Json of_nobody = {{"metadata", {{"uid", 7}, {"resourceVersion", {1}}}}, {"spec", {{"renewTime", 7}}}};
  EXPECT_EQ(hold_of(of_nobody).holder, "");
  for (const Json& odd : {Json(), Json(7), Json::array()}) EXPECT_NE(hold_of(odd).holder, "") << odd;
  for (const Json& lasts : {Json(-1), Json(UINT64_MAX), Json(1e99), Json("60"), Json()})
    EXPECT_EQ(hold_of({{"spec", {{"leaseDurationSeconds", lasts}}}}).lasts, std::chrono::hours(2)) << lasts;
}

Json pod_with(const Json& status) {
  return {{"metadata", {{"name", "p"}, {"uid", "u"}}}, {"status", status}};
}

TEST(K8sPodState, ReportsWhatWillNotRecover) {
  const Json pulling = {
      {"name", "sandbox"},
      {"state", {{"waiting", {{"reason", "ErrImageNeverPull"}, {"message", "not there"}}}}}};
  PodState state = state_of(pod_with({{"phase", "Pending"}, {"containerStatuses", {pulling}}}));
  EXPECT_EQ(state.problem, "ErrImageNeverPull: not there");
  EXPECT_FALSE(state.waits_for_node);
  const Json condition = {{"type", "PodScheduled"}, {"status", "False"}, {"reason", "Unschedulable"}};
  state = state_of(pod_with({{"phase", "Pending"}, {"conditions", {condition}}}));
  EXPECT_EQ(state.problem, "Unschedulable");
  EXPECT_TRUE(state.waits_for_node);
  const Json creating = {{"name", "sandbox"}, {"state", {{"waiting", {{"reason", "PodInitializing"}}}}}};
  state = state_of(pod_with({{"phase", "Pending"}, {"containerStatuses", {creating}}}));
  EXPECT_EQ(state.problem, "");
  EXPECT_EQ(state.waits, "PodInitializing");
}

TEST(K8sPodState, ReportsWhatAVolumeLacks) {
  Json claim = {{"metadata", {{"name", "c"}}}, {"spec", Json::object()}, {"status", {{"phase", "Pending"}}}};
  EXPECT_NE(what_lacks(claim).find("has no storage class"), std::string::npos);
  claim["spec"]["storageClassName"] = "fast";
  EXPECT_NE(what_lacks(claim).find("`fast` has no provisioner"), std::string::npos);
  for (const char* each :
       {"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner",
        "volume.kubernetes.io/selected-node"}) {
    claim["metadata"]["annotations"] = {{each, "somebody"}};
    EXPECT_NE(what_lacks(claim).find("`fast` is not provisioned yet"), std::string::npos);
  }
  claim["status"]["phase"] = "Bound";
  EXPECT_EQ(what_lacks(claim), "");
}

TEST(K8sPodState, ReportsHowItEnded) {
  const Json running = {{"name", "sandbox"}, {"state", {{"running", {{"startedAt", "x"}}}}}};
  const Json ready = {{"type", "Ready"}, {"status", "True"}};
  PodState state = state_of(pod_with({{"phase", "Running"}, {"containerStatuses", {running}}}));
  EXPECT_TRUE(state.running && !state.ready);
  state =
      state_of(pod_with({{"phase", "Running"}, {"containerStatuses", {running}}, {"conditions", {ready}}}));
  EXPECT_TRUE(state.running && state.ready);
  const Json oom = {{"name", "sandbox"},
                    {"state", {{"terminated", {{"exitCode", 137}, {"reason", "OOMKilled"}}}}}};
  state = state_of(pod_with({{"phase", "Failed"}, {"containerStatuses", {oom}}}));
  EXPECT_TRUE(state.ended);
  EXPECT_EQ(state.how, "its container ended with exit code 137; it was out of memory");
  const Json stopped = {{"name", "sandbox"}, {"state", {{"terminated", {{"exitCode", 0}}}}}};
  state = state_of(pod_with({{"phase", "Succeeded"}, {"containerStatuses", {stopped}}}));
  EXPECT_EQ(state.how.substr(0, 27), "its container was stopped (");
  state = state_of(pod_with({{"phase", "Failed"}, {"reason", "Evicted"}, {"message", "The node was low"}}));
  EXPECT_EQ(state.how, "its pod ended: Evicted: The node was low");
  Json deleted = pod_with({{"phase", "Running"}, {"containerStatuses", {running}}});
  deleted["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z";
  state = state_of(deleted);
  EXPECT_FALSE(state.running);
  EXPECT_EQ(state.how, "its pod was deleted");
}

TEST(K8sPodState, AnInitContainerThatFailsIsNamed) {
  const Json end = {{"terminated", {{"exitCode", 1}, {"reason", "Error"}, {"message", "too large"}}}};
  const Json pod = pod_with({{"phase", "Pending"},
                             {"initContainerStatuses",
                              {{{"name", "runner"}, {"state", {{"terminated", {{"exitCode", 0}}}}}},
                               {{"name", "names"}, {"state", end}}}}});
  EXPECT_EQ(state_of(pod).problem, "its init container `names` failed with exit code 1: Error: too large");
}

TEST(K8sPodState, IsStoppedOnceNoContainerRunsOrWill) {
  const Json ended = {{"terminated", {{"exitCode", 0}}}},
             waiting = {{"waiting", {{"reason", "PodInitializing"}}}};
  const auto stopped = [&](const Json& container, const char* restarts) {
    Json pod = pod_with({{"phase", "Failed"},
                         {"initContainerStatuses", {{{"name", "runner"}, {"state", ended}}}},
                         {"containerStatuses", {container}}});
    pod["spec"]["restartPolicy"] = restarts;
    return state_of(pod).stopped;
  };
  EXPECT_TRUE(stopped({{"name", "sandbox"}, {"state", ended}}, "Never"));
  EXPECT_FALSE(stopped({{"name", "sandbox"}, {"state", {{"running", Json::object()}}}}, "Never"));
  EXPECT_FALSE(stopped({{"name", "sandbox"}, {"state", waiting}}, "Never"));
  // What a kubelet reports for a container that was gone before its end was reported.
  Json missed = {{"name", "sandbox"}, {"state", waiting}, {"lastState", ended}};
  EXPECT_TRUE(stopped(missed, "Never"));
  EXPECT_FALSE(stopped(missed, "Always"));
  missed["state"] = {{"running", Json::object()}};
  EXPECT_FALSE(stopped(missed, "Never"));
}

TEST(K8sPodState, WhatIsNotUnderstoodIsNotRunning) {
  for (const Json& odd :
       {Json(), Json::array(), Json{{"status", 3}}, Json{{"status", {{"containerStatuses", 7}}}},
        Json{{"metadata", nullptr}, {"status", {{"conditions", {1, nullptr}}}}}})
    EXPECT_FALSE(state_of(odd).running) << odd;
}

TEST(K8sPodState, WhatHasNoUidIsNeitherThereNorGone) {
  const Json running = {{"name", "sandbox"}, {"state", {{"running", Json::object()}}}};
  const Json status = {{"phase", "Running"}, {"containerStatuses", {running}}};
  for (const Json& metadata : {Json(), Json("u"), Json::object(), Json{{"uid", 7}}, Json{{"uid", ""}}}) {
    const Json pod = {{"metadata", metadata}, {"status", status}};
    EXPECT_FALSE(state_of(pod).exists || state_of(pod).running || state_of(pod).ended) << metadata;
    EXPECT_THROW((void)uid_of(pod), NetError) << metadata;
  }
  EXPECT_EQ(uid_of(pod_with(status)), "u");
}

}  // namespace
}  // namespace isogate::k8s
