// Pods made ahead that could not be made.
#include <atomic>

#include "plugins/k8s/client/access.h"
#include "plugins/k8s/pod/pool.h"
#include "plugins/k8s/services.h"
#include "tests/eventually.h"
#include "tests/k8s/on_fake.h"

namespace isogate::k8s {
namespace {

using test::eventually;

class K8sAhead : public OnFake {
 protected:
  K8sAhead() {
    host_.struct_size = sizeof host_;
    host_.log = [](void*, uint32_t, isogate_str) {};
    host_.instance = sdk::str("test");
    host_.backend_name = sdk::str("k8s");
    host_.sandboxes_dir = sdk::str("/state");
    host_.shell = sdk::str("/bin/sh");
    config_ = parse_config(
        R"({"network": "open", "allow_unverified_cluster": true, "orphaned_after_sec": 5, "warm_pool": 1,
                               "kubeconfig": ")" +
        api_.kubeconfig() + "\"}");
  }
  [[nodiscard]] bool is_there(const char* plural, const std::string& name) const {
    for (const Json& each : api_.all(plural))
      if (each.at("metadata").at("name") == name) return true;
    return false;
  }
  isogate_host host_{};
  Config config_;
};

// Its Lease is written as nobody's, and then nothing of it can be removed for a while.
TEST_F(K8sAhead, WhatCouldNotBeMadeIsRemovedLater) {
  const auto makes_pod = [](const Heard& heard) {
    return heard.method == "POST" && heard.target.ends_with("/pods");
  };
  const auto gives_up = [](const Heard& heard) {
    if (heard.method != "PUT" || heard.target.find("/leases/isg-") == std::string::npos) return false;
    const Json spec = Json::parse(heard.body).value("spec", Json::object());
    return !spec.contains("holderIdentity") || spec.at("holderIdentity").is_null() ||
           spec.at("holderIdentity") == "";
  };
  std::atomic<bool> fails{false};
  api_.answer_if(makes_pod, FakeCluster::status(403, "Forbidden"));
  api_.fail_if(
      [&](const Heard& heard) {
        if (fails) return true;
        fails = gives_up(heard);
        return false;
      },
      FakeApi::Fault::kError);
  Services services(sdk::Host(host_), config_, load_access(config_.access));
  services.serves = true;
  Pool pool(services);
  ASSERT_TRUE(eventually(30, [&] { return fails.load(); }));
  ASSERT_TRUE(eventually(5, [&] { return api_.all("leases").size() == 1; }));
  const std::string left = api_.one("leases").at("metadata").at("name");
  std::this_thread::sleep_for(std::chrono::seconds(8));  // longer than the pool tries to remove it
  EXPECT_TRUE(is_there("leases", left));
  EXPECT_TRUE(is_there("networkpolicies", left));
  api_.answer_if({}, "");
  api_.fail_if({}, FakeApi::Fault::kError);
  EXPECT_TRUE(eventually(40, [&] { return !is_there("leases", left); }));
  EXPECT_FALSE(is_there("networkpolicies", left));
}

TEST_F(K8sAhead, TheLeaseOfAGatewayThatWasSilentForLongIsRemoved) {
  Services services(sdk::Host(host_), config_, load_access(config_.access));
  const auto put = [&](const std::string& name, int lasts) {
    Json lease = {{"metadata", {{"name", name}, {"labels", gateway_labels_of(services.any.owner)}}}};
    write_holder(lease, name, std::chrono::seconds(lasts));
    api_.put("leases", lease);
  };
  const auto has = [&](const std::string& name) {
    return services.api.find(services.leases(name), usual()).has_value();
  };
  put("isogate-gateway-gone", 0);
  put("isogate-gateway-here", 120);
  EXPECT_EQ(services.presence.all(usual()).size(), 2u) << "they are seen for the first time";
  EXPECT_EQ(services.presence.all(usual()), std::set<std::string>{"isogate-gateway-here"});
  EXPECT_TRUE(has("isogate-gateway-gone")) << "it may return";
  services.presence.all(usual(), std::chrono::seconds(0));
  EXPECT_FALSE(has("isogate-gateway-gone"));
  EXPECT_TRUE(has("isogate-gateway-here"));
}

// What a taken pod belongs to is the Lease that it was made for, and so are those that replace it.
class K8sTaken : public K8sAhead {
 protected:
  K8sTaken() : services_(sdk::Host(host_), config_, load_access(config_.access)) {
    services_.serves = true;
    mine_ = services_.any;
    mine_.owner.sandbox_id = FakeGateway::id_of("a");
  }
  std::unique_ptr<SandboxPod> open(const OpenWish& wish) {
    auto pod = std::make_unique<SandboxPod>(services_, mine_, limits_of(config_, {}));
    pod->open(wish, call());
    if (!wish.unchanged) measure(*pod);
    return pod;
  }
  void measure(SandboxPod& pod) {
    isogate_evidence_request request{};
    request.struct_size = sizeof request;
    request.gateway_address = sdk::str("127.0.0.1");
    request.gateway_port = 1;
    (void)pod.evidence(call(), request);
  }
  void forget_users() {
    api_.edit("leases", mine_.owner.sandbox_id, [](Json& lease) {
      Json& text = lease["metadata"]["annotations"][kRecord];
      Json record = Json::parse(text.get<std::string>());
      record["users"] = Json::array();
      text = record.dump();
    });
  }
  [[nodiscard]] sdk::Call call() const { return sdk::Call(call_); }
  // Of all its pods, whatever they carry: they have its claim.
  [[nodiscard]] std::vector<std::string> pods() const {
    std::vector<std::string> found;
    for (const Json& each : api_.all("pods"))
      if (each.dump().find(record().at("claim").get<std::string>()) != std::string::npos)
        found.push_back(each.at("metadata").at("uid"));
    return found;
  }
  [[nodiscard]] Json record() const {
    for (const Json& each : api_.all("leases"))
      if (each.at("metadata").at("name") == mine_.owner.sandbox_id)
        return Json::parse(each.at("metadata").at("annotations").at(kRecord).get<std::string>());
    return {{"claim", "none"}};
  }
  Services services_;
  Parts mine_;
  const isogate_call call_{sizeof(isogate_call), -1, INT64_MAX, {}};
};

TEST_F(K8sTaken, APodThatReplacesItIsRecognizedAndEnded) {
  Pool pool(services_);
  ASSERT_TRUE(eventually(30, [&] { return pool.text().find("1 of 1") != std::string::npos; }));
  auto taken = open({.ready = &pool});
  ASSERT_NE(record().at("ahead"), "");
  ASSERT_EQ(pods().size(), 1u);
  taken->end(call());
  ASSERT_TRUE(pods().empty());
  auto again = open({.known = true});
  ASSERT_EQ(pods().size(), 1u);
  const std::string second = pods().front();
  again->detach();
  again = open({.known = true, .unchanged = true});
  ASSERT_EQ(pods().size(), 1u) << "another runs beside it";
  EXPECT_EQ(pods().front(), second);
  again->end(call());
  EXPECT_TRUE(pods().empty()) << "it was reported as ended";
  auto last = open({.known = true});
  last->purge(call());
  EXPECT_TRUE(pods().empty());
}

TEST_F(K8sTaken, ASweepLeavesWhatThisGatewayHasOpenedMeanwhile) {
  auto opened = open({});
  const std::string uid = pods().front();
  SandboxPod(services_, mine_, {}).end_unused(call());
  EXPECT_EQ(pods(), std::vector<std::string>{uid});
  forget_users();
  SandboxPod(services_, mine_, {}).end_unused(call());
  EXPECT_TRUE(pods().empty());
}

// The pods made ahead are renewed by the same thread.
TEST_F(K8sTaken, ASweepDoesNotWaitForAPodOnALostNode) {
  auto opened = open({});
  const std::string uid = pods().front();
  forget_users();
  api_.keep_pods(true);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(SandboxPod(services_, mine_, {}).end_unused(call()));
  EXPECT_LT(test::since(begin), 10);
  EXPECT_EQ(record().at("pod_uid"), uid) << "it may still run, and is forgotten";
  api_.drop("pods", record().at("pod"));
  EXPECT_TRUE(SandboxPod(services_, mine_, {}).end_unused(call()));
  EXPECT_EQ(record().at("pod_uid"), "");
}

}  // namespace
}  // namespace isogate::k8s
