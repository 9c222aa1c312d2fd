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
    config_ = parse_config(R"({"network": "open", "allow_unverified_cluster": true, "orphaned_after_sec": 5,
                               "kubeconfig": ")" +
                           api_.kubeconfig() + "\"}");
    like_.owner = {"test", "k8s", {}};
    like_.shell = "/bin/sh";
  }
  [[nodiscard]] bool is_there(const char* plural, const std::string& name) const {
    for (const Json& each : api_.all(plural))
      if (each.at("metadata").at("name") == name) return true;
    return false;
  }
  isogate_host host_{};
  Config config_;
  Parts like_;
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
  Pool pool(services, 1, like_, limits_of(config_, {}));
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

}  // namespace
}  // namespace isogate::k8s
