// What the probe asks of a cluster, and what it reports.
#include <atomic>
#include <thread>

#include "plugins/k8s/backend.h"
#include "tests/k8s/on_fake.h"
#include "tests/support/program.h"

namespace isogate::k8s {
namespace {

using testing::HasSubstr;

// A cluster that enforces admission.
class K8sProbe : public testing::Test {
 protected:
  // `more`: further members of the backend's configuration, as JSON.
  isogate_probe probe(const std::string& more = {}) {
    const std::string kubeconfig = files_.file(
        "kubeconfig",
        "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{name: c, cluster: {server: "
        "'http://127.0.0.1:" +
            std::to_string(cluster_.port()) +
            "'}}]\nusers: [{name: u, user: {}}]\ncontexts: [{name: c, context: {cluster: c, user: u, "
            "namespace: box}}]\n",
        0644);
    isogate_host host{};
    host.struct_size = sizeof host;
    host.log = [](void*, uint32_t, isogate_str) {};
    host.flags = ISOGATE_HOST_PROBE_ONLY;
    host.instance = sdk::str("test");
    host.backend_name = sdk::str("k8s");
    host.sandboxes_dir = sdk::str("/state");
    host.shell = sdk::str("/bin/sh");
    Backend backend(sdk::Host(host),
                    R"({"network": "open", "allow_unverified_cluster": true, "kubeconfig": ")" + kubeconfig +
                        '"' + more + "}");
    const isogate_call call{sizeof call, -1, INT64_MAX, {}};
    isogate_probe found{};
    found.struct_size = sizeof found;
    pods_asked_ = 0;
    backend.probe(sdk::Call(call), found);
    return found;
  }
  // In which the credentials were asked about; nothing: they were not.
  [[nodiscard]] std::optional<std::string> namespace_asked(const std::string& resource) const {
    for (const Heard& each : cluster_.heard()) {
      if (each.target.find("selfsubjectaccessreviews") == std::string::npos) continue;
      const Json asked = Json::parse(each.body).at("spec").at("resourceAttributes");
      if (asked.at("resource") == resource) return asked.at("namespace").get<std::string>();
    }
    return std::nullopt;
  }

  std::atomic<int> delay_ms_{0};
  std::string lacks_ = "nothing";  // a resource

 private:
  std::string answer(const Heard& heard) {
    std::this_thread::sleep_for(std::chrono::milliseconds(delay_ms_));
    if (heard.target == "/version") return FakeCluster::json(R"({"gitVersion": "v1.30.0"})");
    if (heard.target.find("selfsubjectaccessreviews") != std::string::npos) {
      const bool lacks = Json::parse(heard.body).at("spec").at("resourceAttributes").at("resource") == lacks_;
      return FakeCluster::json(Json{{"status", {{"allowed", !lacks}}}}.dump(), 201);
    }
    if (heard.method == "GET") return FakeCluster::json(R"({"metadata": {}, "items": []})");
    // The first pod is the backend's own.
    return pods_asked_++ == 0 ? FakeCluster::json(heard.body, 201) : FakeCluster::status(403, "Forbidden");
  }

  std::atomic<int> pods_asked_{0};
  test::TemporaryDirectory files_;
  FakeCluster cluster_{[this](Peer& peer, const Heard& heard) {
    peer.write(answer(heard));
    return true;
  }};
};

TEST_F(K8sProbe, OfASlowApiServerSucceeds) {
  delay_ms_ = 250;  // of some thirty requests, one after the other
  const auto begin = std::chrono::steady_clock::now();
  const isogate_probe found = probe();
  EXPECT_EQ(found.verdict, ISOGATE_PROBE_AVAILABLE) << found.detail;
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
}

TEST_F(K8sProbe, NamesTheRightToGetNodesWhereMachinesAreProven) {
  lacks_ = "nodes";
  const isogate_probe without = probe();
  EXPECT_EQ(without.verdict, ISOGATE_PROBE_AVAILABLE) << without.detail;
  EXPECT_FALSE(namespace_asked("nodes"));
  const isogate_probe found = probe(R"(, "isolation": "vm", "runtime_class": "kata")");
  EXPECT_EQ(found.verdict, ISOGATE_PROBE_UNAVAILABLE);
  EXPECT_THAT(found.detail, HasSubstr("may not get nodes: the roles are in deploy/k8s/rbac-nodes.yaml"));
  EXPECT_EQ(namespace_asked("nodes"), "") << "they are in none";
  EXPECT_EQ(namespace_asked("pods"), "box");
}

}  // namespace
}  // namespace isogate::k8s
