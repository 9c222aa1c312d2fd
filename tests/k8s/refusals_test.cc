// What makes this backend, or one of its sandboxes, refuse: through a gateway, on a real cluster.
#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;

class K8sRefuses : public OnCluster {
 protected:
  // Of test::cluster_config(), with `from` as `to`.
  GatewayOptions with(const std::string& from, const std::string& to) const {
    GatewayOptions changed = options();
    const size_t at = changed.yaml.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.yaml.replace(at, from.size(), to);
    return changed;
  }
};

TEST_F(K8sRefuses, ANetworkThatLetsPacketsOut) {
  const std::string text =
      refusal_of(with("allow_unenforced_network: true", "allow_unenforced_network: false"));
  EXPECT_THAT(text, HasSubstr("packets of sandboxes get out"));
  EXPECT_THAT(text, HasSubstr("allow_unenforced_network: true"));
}

TEST_F(K8sRefuses, APolicyThatDeniesWhereItIsNotEnforced) {
  GatewayOptions denying = options("", "", "egress: deny");
  denying.wait_ready = false;
  const Gateway gateway(denying);
  ASSERT_TRUE(test::decided(gateway));
  const test::Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_TRUE(refused(answer, 503, "backend_unavailable"));
  EXPECT_THAT(answer.text, HasSubstr("egress"));
  EXPECT_TRUE(all("leases").empty());
}

TEST_F(K8sRefuses, ANamespaceThatAdmitsWhatIsRootOnItsNode) {
  const std::string kubeconfig = "kubeconfig: " + test::cluster_kubeconfig() + ", namespace: default";
  const test::TemporaryDirectory files;
  const std::string copy = files.file("admin", test::read_whole(test::cluster_kubeconfig()));
  EXPECT_THAT(detail_of(bare("kubeconfig: " + copy + ", namespace: default")),
              HasSubstr("allow_unenforced_admission: true"));
}

TEST_F(K8sRefuses, CredentialsThatLackTheRole) {
  const std::string text = detail_of(options("namespace: default"));
  EXPECT_THAT(text, HasSubstr("may not create pods, delete pods"));
  EXPECT_THAT(text, HasSubstr("deploy/k8s/rbac.yaml"));
}

TEST_F(K8sRefuses, AnImageThatIsNotThereAtOnce) {
  const double took = test::seconds_of([&] {
    EXPECT_THAT(refusal_of(with("isogate-test:base", "isogate-test:absent")), HasSubstr("ErrImageNeverPull"));
  });
  EXPECT_LT(took, 40.0) << "ready_timeout_sec is 120";
}

TEST_F(K8sRefuses, ARunnerThatIsNotInItsImage) {
  EXPECT_THAT(refusal_of(options("runner_program: /no-such-program")), HasSubstr("no-such-program"));
}

TEST_F(K8sRefuses, APodThatNoNodeCanHold) {
  EXPECT_THAT(refusal_of(options("template: {spec: {nodeSelector: {none: such}}}, node_timeout_sec: 2")),
              HasSubstr("Unschedulable"));
}

TEST_F(K8sRefuses, LimitsThatAPodCannotHave) {
  const Gateway gateway(options("", "", "limits: {max_pids: 100}"));
  const test::Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_NE(answer.status, 200);
  EXPECT_THAT(answer.text, HasSubstr("podPidsLimit"));
}

TEST_F(K8sRefuses, AClusterThatIsNotThere) {
  const test::TemporaryDirectory files;
  std::string kubeconfig = test::read_whole(test::cluster_directory() + "/kubeconfig-isogate");
  const size_t port = kubeconfig.find("https://127.0.0.1:");
  ASSERT_NE(port, std::string::npos);
  kubeconfig.replace(port, kubeconfig.find('\n', port) - port, "https://127.0.0.1:1");
  const std::string path = files.file("kubeconfig", kubeconfig);
  EXPECT_THAT(detail_of(bare("kubeconfig: " + path)), HasSubstr("127.0.0.1:1"));
}

}  // namespace
}  // namespace isogate::k8s
