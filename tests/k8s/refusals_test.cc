// Reasons for which this backend, or one of its sandboxes, refuses: through a gateway, on a real cluster.
#include <unistd.h>

#include "tests/k8s/on_cluster.h"
#include "tests/support/processes.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::Gateway;
using test::GatewayOptions;
using testing::HasSubstr;
using testing::Not;

class K8sRefuses : public OnCluster {
 protected:
  // test::cluster_config() with `from` replaced by `to`.
  GatewayOptions with(const std::string& from, const std::string& to) const {
    GatewayOptions changed = options();
    const size_t at = changed.yaml.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    changed.yaml.replace(at, from.size(), to);
    return changed;
  }
  // The administrator's, who may read everything.
  [[nodiscard]] std::string admin() const {
    return "kubeconfig: " + files_.file("admin", test::read_whole(test::cluster_kubeconfig()));
  }

  test::TemporaryDirectory files_;
};

TEST_F(K8sRefuses, ANamespaceThatAdmitsWhatIsRootOnItsNode) {
  const std::string text = detail_of(bare(admin() + ", namespace: default"));
  EXPECT_THAT(text, HasSubstr("label it pod-security.kubernetes.io/enforce=restricted"));
  EXPECT_THAT(text, HasSubstr("the service account of deploy/k8s/rbac.yaml"));
  EXPECT_THAT(text, HasSubstr("PodSecurityPolicy"));
  EXPECT_THAT(text, HasSubstr("allow_unenforced_admission: true"));
}

// With Pod Security (1.25), the label applies to the administrator, too.
TEST_F(K8sRefuses, ANamespaceWhoseLabelIsNotEnforcedIsNotToBeLabelled) {
  if (test::cluster_enforces_labels()) GTEST_SKIP() << "this cluster enforces the label";
  const std::string text = detail_of(bare(admin() + ", namespace: isogate-sandboxes"));
  EXPECT_THAT(text, Not(HasSubstr("label it")));
  EXPECT_THAT(text, HasSubstr("use the service account of deploy/k8s/rbac.yaml"));
}

TEST_F(K8sRefuses, NoNamespaceWhoseLabelIsEnforcedWhateverTheCredentials) {
  if (!test::cluster_enforces_labels()) GTEST_SKIP() << "this cluster enforces no labels";
  std::string config = test::cluster_config();
  config.replace(0, config.find(", "), admin() + ", namespace: isogate-sandboxes");
  const Gateway gateway(bare(config));
  EXPECT_EQ(Caller(gateway, "a").out("echo served"), "served\n");
}

TEST_F(K8sRefuses, ANamespaceThatIsNotThere) {
  EXPECT_THAT(detail_of(bare(admin() + ", namespace: nope")),
              HasSubstr("the namespace `nope` does not exist: create it, with deploy/k8s/rbac.yaml"));
}

TEST_F(K8sRefuses, AnUnreadableKubeconfigNamesWhoHasToReadIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root's backend hosts are another user";
  const std::string path = files_.file("kubeconfig", "{}", 0600);
  const std::string text = detail_of(bare("kubeconfig: " + path));
  EXPECT_THAT(text, HasSubstr("Permission denied: it has to be readable by the user `isogate-host`"));
}

TEST_F(K8sRefuses, CredentialsThatLackTheRole) {
  const std::string text = detail_of(options("namespace: default"));
  EXPECT_THAT(text, HasSubstr("may not create pods, delete pods"));
  EXPECT_THAT(text, HasSubstr("deploy/k8s/rbac.yaml"));
}

TEST_F(K8sRefuses, AVirtualMachineThatCannotBeProven) {
  const std::string text = detail_of(options("isolation: vm, runtime_class: kata"));
  EXPECT_THAT(text, HasSubstr("may not get nodes: the roles are in deploy/k8s/rbac-nodes.yaml"));
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

TEST_F(K8sRefuses, AMissingSecretReportsWhatIsKnownAndWhereMoreIs) {
  const std::string secret = "secrets: [{secret: nosuch, target: /sec}], ready_timeout_sec: 8";
  const std::string text = refusal_of(options(secret));
  EXPECT_THAT(text, HasSubstr("it does not run after 8 s (PodInitializing)"));
  EXPECT_THAT(text, HasSubstr("`kubectl -n isogate-sandboxes describe pod isg-"));
}

TEST_F(K8sRefuses, ASecretThatIsNotThereIsNamedWhereEventsMayBeRead) {
  std::string config = test::cluster_config();
  config.replace(0, config.find(", "), admin() + ", namespace: isogate-sandboxes");
  config += ", allow_unenforced_admission: true, secrets: [{secret: nosuch, target: /sec}]";
  EXPECT_THAT(refusal_of(bare(config + ", ready_timeout_sec: 8")),
              AllOf(HasSubstr("FailedMount: "), HasSubstr("nosuch"), HasSubstr("not found")));
}

TEST_F(K8sRefuses, AStorageClassThatIsNotThereIsNamed) {
  const std::string text = refusal_of(options("storage_class: nosuch, ready_timeout_sec: 6"));
  EXPECT_THAT(text, HasSubstr("of the storage class `nosuch` has no provisioner"));
  EXPECT_THAT(text, HasSubstr("its PersistentVolumeClaim isg-"));
}

TEST_F(K8sRefuses, AVolumeThatIsBeingMadeIsWaitedFor) {
  const Resource classes{"storage.k8s.io/v1", "", "storageclasses"};
  const Json slow = {{"apiVersion", "storage.k8s.io/v1"},
                     {"kind", "StorageClass"},
                     {"metadata", {{"name", instance_}}},
                     {"provisioner", "isogate.test/nobody"},
                     {"volumeBindingMode", "Immediate"}};
  api_->create(classes, slow, usual());
  const double took = test::seconds_of([&] {
    EXPECT_THAT(
        refusal_of(options("node_timeout_sec: 1, ready_timeout_sec: 12, storage_class: " + instance_)),
        HasSubstr("of the storage class `" + instance_ + "` is not provisioned yet by isogate.test/nobody"));
  });
  api_->remove({classes.group_version, "", classes.plural, instance_}, Json(), usual());
  EXPECT_GT(took, 12.0);
}

TEST_F(K8sRefuses, LimitsThatAPodCannotHave) {
  test::GatewayOptions asks = options("", "", "limits: {max_pids: 100}");
  asks.wait_ready = false;
  const Gateway gateway(asks);
  ASSERT_TRUE(test::decided(gateway));
  const test::Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_EQ(answer.status, 503);
  EXPECT_THAT(answer.text, HasSubstr("it cannot limit max_pids"));
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
