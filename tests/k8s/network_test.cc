// Network policies where they are enforced, and where they no longer are: the tests' own engine for them
// (tests/engines/kubernetes/policies.py), and the shipped configuration of the backend on it.
#include <poll.h>
#include <unistd.h>

#include <csignal>

#include "plugins/k8s/client/exec_channel.h"
#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"
#include "tests/support/program.h"
#include "tests_dirs.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;

// Restores the cluster.
class K8sNetwork : public OnCluster {
 protected:
  void SetUp() override {
    OnCluster::SetUp();
    if (IsSkipped()) return;
    before_ = test::cluster_enforces_policies();
    enforce(true);
  }
  void TearDown() override {
    if (api_) enforce(before_);
    OnCluster::TearDown();
  }
  static void enforce(bool wanted) {
    const auto made = test::run_program({ISOGATE_SOURCE_DIR "/tests/engines/kubernetes.sh",
                                         wanted ? "policies" : "no-policies", test::cluster_directory()});
    if (made.exit_code == 77) GTEST_SKIP() << made.err;
    ASSERT_EQ(made.exit_code, 0) << made.err;
    ASSERT_EQ(test::cluster_enforces_policies(), wanted);
  }
  // The shipped one.
  [[nodiscard]] GatewayOptions shipped(const std::string& backend = {}) const {
    GatewayOptions options = bare(test::cluster_config(false));
    options.yaml += backend.empty() ? "" : "    " + backend + "\n";
    return options;
  }

 private:
  bool before_ = false;
};

// Two pods of the administrator: one listens, the other connects to it.
class K8sPolicies : public K8sNetwork {
 protected:
  static constexpr const char* kSpace = "default";

  void SetUp() override {
    K8sNetwork::SetUp();
    if (IsSkipped()) return;
    create_pod("server", "httpd -p 8080; httpd -p 8081; exec sleep 3600");
    create_pod("client", "exec sleep 3600");
    const Json server = running("server"), client = running("client");
    server_ = server.at("status").at("podIP");
    client_ = client.at("status").at("podIP");
    node_ = client.at("status").at("hostIP");
    const Json node = api_->get({"v1", "", "nodes", client.at("spec").at("nodeName")}, usual());
    kubelet_ =
        std::to_string(node.at("status").at("daemonEndpoints").at("kubeletEndpoint").at("Port").get<int>());
    const std::string seen = said("server", "ip -6 -o addr show dev eth0");
    const size_t begin = seen.find("fe80");
    ASSERT_NE(begin, std::string::npos) << seen;
    server_6_ = seen.substr(begin, seen.find('/', begin) - begin) + "%eth0";
  }
  void TearDown() override {
    for (const char* plural : {"networkpolicies", "pods"}) {
      if (!api_) break;
      Resource kind = of(plural);
      for (const Json& each : api_->list(kind, {"test=" + instance_, "", 500}, usual()).at("items")) {
        kind.name = name_of(each);
        api_->remove(kind, {{"gracePeriodSeconds", 0}}, usual());
      }
    }
    K8sNetwork::TearDown();
  }

  [[nodiscard]] Json metadata(const std::string& role) const {
    return {{"name", instance_ + "-" + role}, {"labels", {{"test", instance_}, {"role", role}}}};
  }
  void create_pod(const std::string& role, const std::string& script) const {
    const Json main = {{"name", "main"},
                       {"image", "isogate-test:small"},
                       {"imagePullPolicy", "Never"},
                       {"ports", {{{"name", "web"}, {"containerPort", 8080}}}},
                       {"command", {"sh", "-c", script}}};
    api_->create(of("pods"),
                 {{"apiVersion", "v1"},
                  {"kind", "Pod"},
                  {"metadata", metadata(role)},
                  {"spec", {{"terminationGracePeriodSeconds", 0}, {"containers", {main}}}}},
                 usual());
  }
  [[nodiscard]] Json running(const std::string& role) const {
    Json found;
    EXPECT_TRUE(eventually(60, [&] {
      found = api_->get(of("pods", instance_ + "-" + role), usual());
      return found.at("status").value("phase", "") == "Running";
    })) << found.dump();
    return found;
  }
  // A policy for the pods of a role, with `more` in its spec.
  void create_policy(const std::string& role, const std::string& name, const Json& more) const {
    Json spec = {{"podSelector", {{"matchLabels", {{"test", instance_}, {"role", role}}}}}};
    spec.update(more);
    api_->create(of("networkpolicies"),
                 {{"apiVersion", "networking.k8s.io/v1"},
                  {"kind", "NetworkPolicy"},
                  {"metadata", metadata(name)},
                  {"spec", spec}},
                 usual());
  }
  // Targets of the client: peers and TCP ports.
  void allow(const std::string& name, const Json& peer, const Json& port) const {
    const Json rule = {{"to", {peer}}, {"ports", {{{"protocol", "TCP"}, {"port", port}}}}};
    create_policy("client", name, {{"policyTypes", {"Egress"}}, {"egress", {rule}}});
  }
  void remove_policy(const std::string& name) const {
    api_->remove(of("networkpolicies", instance_ + "-" + name), Json(), usual());
  }
  static Resource of(const std::string& plural, const std::string& name = {}) {
    Resource one = resource(plural, name);
    one.name_space = kSpace;
    return one;
  }

  // What a command of a pod writes, then its exit code.
  [[nodiscard]] std::string said(const std::string& role, const std::string& script) const {
    ExecRequest request;
    request.name_space = kSpace;
    request.pod = instance_ + "-" + role;
    request.container = "main";
    request.command = {"sh", "-c", script + "; echo $?"};
    const auto channel = ExecChannel::open(*api_, request, usual());
    std::string all, buffer(4096, '\0');
    for (;;) {
      const ssize_t n = channel->read_some(buffer.data(), buffer.size());
      if (n > 0) all.append(buffer.data(), static_cast<size_t>(n));
      pollfd watched{channel->fd(), POLLIN, 0};
      if (n == 0 || (n < 0 && (errno != EAGAIN || ::poll(&watched, 1, 20'000) <= 0))) return all;
    }
  }
  // One attempt to connect, for a second.
  [[nodiscard]] bool reaches(const std::string& from, const std::string& address,
                             const std::string& port) const {
    return said(from, "nc -w 1 " + address + " " + port + " < /dev/null > /dev/null 2>&1") == "0\n";
  }
  // Whether it becomes true: a policy is in force a moment after its creation.
  [[nodiscard]] bool opens(const std::string& address, const std::string& port) const {
    return eventually(20, [&] { return reaches("client", address, port); });
  }
  [[nodiscard]] bool closes(const std::string& address, const std::string& port) const {
    return eventually(20, [&] { return !reaches("client", address, port); });
  }
  static pid_t engine() {
    return static_cast<pid_t>(std::stol(test::read_whole(test::cluster_directory() + "/policies.pid")));
  }

  static inline const Json kNoWayOut = {{"policyTypes", {"Egress"}}, {"egress", Json::array()}};
  std::string server_, server_6_, client_, node_, kubelet_;
};

TEST_F(K8sPolicies, PodsWithoutOneReachEachOtherAndTheirNode) {
  EXPECT_TRUE(reaches("client", server_, "8080"));
  EXPECT_TRUE(reaches("client", server_6_, "8080"));
  EXPECT_TRUE(reaches("client", node_, kubelet_));
}

TEST_F(K8sPolicies, ADenialOfEgressHoldsForPodsTheNodeAndIPv6) {
  create_policy("client", "deny", kNoWayOut);
  EXPECT_TRUE(closes(server_, "8080"));
  EXPECT_FALSE(reaches("client", server_6_, "8080"));
  EXPECT_FALSE(reaches("client", node_, kubelet_));
  EXPECT_TRUE(reaches("server", node_, kubelet_)) << "it selects another pod";
  remove_policy("deny");
  EXPECT_TRUE(opens(server_, "8080"));
}

TEST_F(K8sPolicies, ADenialOfIngressHoldsForPodsAndNotForAnswers) {
  create_policy("server", "deny", {{"policyTypes", {"Ingress"}}});
  EXPECT_TRUE(closes(server_, "8080"));
  EXPECT_FALSE(reaches("client", server_6_, "8080"));
  EXPECT_TRUE(reaches("server", node_, kubelet_)) << "responses to it come in";
}

TEST_F(K8sPolicies, WhatIsAllowedFlowsByAddressPortAndSelector) {
  create_policy("client", "deny", kNoWayOut);
  EXPECT_TRUE(closes(server_, "8080"));
  allow("address", {{"ipBlock", {{"cidr", server_ + "/32"}}}}, 8080);
  EXPECT_TRUE(opens(server_, "8080"));
  EXPECT_FALSE(reaches("client", server_, "8081"));
  EXPECT_FALSE(reaches("client", node_, kubelet_));
  remove_policy("address");
  EXPECT_TRUE(closes(server_, "8080"));
  allow("selector", {{"podSelector", {{"matchLabels", {{"test", instance_}, {"role", "server"}}}}}}, 8081);
  EXPECT_TRUE(opens(server_, "8081"));
  EXPECT_FALSE(reaches("client", server_, "8080"));
}

TEST_F(K8sPolicies, WhatABlockExceptsDoesNotFlow) {
  allow("block", {{"ipBlock", {{"cidr", "0.0.0.0/0"}, {"except", {node_ + "/32"}}}}}, 8080);
  EXPECT_TRUE(closes(node_, kubelet_));
  EXPECT_TRUE(reaches("client", server_, "8080"));
  remove_policy("block");
  allow("block", {{"ipBlock", {{"cidr", "0.0.0.0/0"}, {"except", {server_ + "/32"}}}}}, 8080);
  EXPECT_TRUE(closes(server_, "8080"));
}

TEST_F(K8sPolicies, AnIngressPortByItsNameIsThatOfThePodItSelects) {
  const Json rule = {{"from", {{{"podSelector", Json::object()}}}}, {"ports", {{{"port", "web"}}}}};
  create_policy("server", "named", {{"policyTypes", {"Ingress"}}, {"ingress", {rule}}});
  EXPECT_TRUE(closes(server_, "8081"));
  EXPECT_TRUE(reaches("client", server_, "8080"));
}

// A port of other pods, by its name.
TEST_F(K8sPolicies, WhatIsNotUnderstoodDropsAllThatItSelects) {
  allow("all", {{"ipBlock", {{"cidr", server_ + "/32"}}}}, 8080);
  EXPECT_TRUE(closes(node_, kubelet_));
  EXPECT_TRUE(reaches("client", server_, "8080"));
  allow("named", {{"ipBlock", {{"cidr", "10.255.0.0/16"}}}}, "http");
  EXPECT_TRUE(closes(server_, "8080"));
  EXPECT_TRUE(reaches("server", node_, kubelet_)) << "it does not select the other pod";
}

TEST_F(K8sPolicies, AnEngineThatIsStoppedLeavesNoRulesAndOneThatIsKilledLeavesAll) {
  create_policy("client", "deny", kNoWayOut);
  EXPECT_TRUE(closes(server_, "8080"));
  enforce(false);
  EXPECT_TRUE(reaches("client", server_, "8080"));
  enforce(true);
  EXPECT_FALSE(reaches("client", server_, "8080")) << "it is in force once the engine reports it";
  ::kill(engine(), SIGKILL);
  EXPECT_FALSE(reaches("client", server_, "8080"));
}

TEST_F(K8sNetwork, TheShippedConfigurationServesWhereItIsEnforcedAndDeniesEgress) {
  const Gateway gateway(shipped("egress: deny"));
  const Caller caller(gateway, "a");
  EXPECT_EQ(caller.out("echo served"), "served\n");
  EXPECT_THAT(caller.get("/backends").text, HasSubstr("egress_deny"));
  EXPECT_EQ(gateway.log().find("served all the same"), std::string::npos) << gateway.log();
  const std::string node = pod().at("status").at("hostIP");
  const Json after =
      caller.run("python3 -c 'import socket; socket.create_connection((\"" + node + "\", 22), 2)'");
  EXPECT_THAT(after.at("stderr").get<std::string>(), HasSubstr("timed out")) << after;
}

TEST_F(K8sNetwork, TheShippedConfigurationRefusesWhereItIsNotEnforcedAnyMore) {
  enforce(false);
  const std::string text = refusal_of(shipped("egress: deny"));
  EXPECT_THAT(text, HasSubstr("packets of sandboxes get out, although a NetworkPolicy denies it"));
  EXPECT_THAT(text, HasSubstr(" answered. Use a network that enforces policies"));
  EXPECT_THAT(text, HasSubstr("allow_unenforced_network: true"));
}

TEST_F(K8sNetwork, AGatewayThatServedRefusesItsNextSandboxOnceTheRulesAreGone) {
  const Gateway gateway(shipped());
  EXPECT_EQ(Caller(gateway, "a").out("echo served"), "served\n");
  enforce(false);
  const test::Answer answer = Caller(gateway, "b").exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("packets of sandboxes get out"));
}

TEST_F(K8sNetwork, APolicyThatDeniesIsNotServedWhereItMayNotBeEnforced) {
  enforce(false);
  GatewayOptions denying = options("", "", "egress: deny");
  denying.wait_ready = false;
  const Gateway gateway(denying);
  ASSERT_TRUE(test::decided(gateway));
  const test::Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("egress"));
  EXPECT_TRUE(all("leases").empty());
}

}  // namespace
}  // namespace isogate::k8s
