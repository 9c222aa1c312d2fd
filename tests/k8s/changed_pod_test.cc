// Pods that somebody else changes, on a real cluster, and which parts of the node a tenant can reach.
#include "tests/k8s/on_cluster.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using test::GatewayOptions;

class K8sChangedPod : public OnCluster {
 protected:
  // Kills the gateway and starts another one on its state directory.
  static std::unique_ptr<Gateway> again(const std::unique_ptr<Gateway>& first, GatewayOptions options) {
    first->kill();
    return std::make_unique<Gateway>(after(*first, std::move(options)));
  }
};

TEST_F(K8sChangedPod, APatchedImageIsNotServed) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  ASSERT_EQ(me.run("echo mine > kept").at("exit_code"), 0);
  const Json first = pod();
  Json containers = first.at("spec").at("containers");
  ASSERT_EQ(containers.size(), 1u);
  containers[0]["image"] = "isogate-test:small";
  change(first, {{"spec", {{"containers", containers}}}});
  EXPECT_TRUE(eventually(90, [&] {
    const auto answer = me.exec("cat kept");
    const auto left = live("pods");
    return answer.status == 200 && answer.body.at("stdout") == "mine\n" && left.size() == 1 &&
           uid_of(left[0]) != uid_of(first);
  })) << gateway.log();
}

TEST_F(K8sChangedPod, ARelabelledPodIsNotAdopted) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_EQ(Caller(*first, "a").run("echo mine > kept").at("exit_code"), 0);
  const Json before = pod();
  change(before, {{"metadata", {{"labels", {{"role", "database"}}}}}});
  const auto second = again(first, options());
  EXPECT_EQ(Caller(*second, "a").out("cat kept"), "mine\n");
  EXPECT_TRUE(eventually(kGone, [&] {
    const auto left = live("pods");
    return left.size() == 1 && uid_of(left[0]) != uid_of(before);
  })) << second->log();
}

TEST_F(K8sChangedPod, APodThatIsAsItWasMeasuredIsAdopted) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_EQ(Caller(*first, "a").run("echo here > /tmp/mark").at("exit_code"), 0);
  const std::string uid = uid_of(pod());
  const auto second = again(first, options());
  EXPECT_EQ(Caller(*second, "a").out("cat /tmp/mark"), "here\n") << second->log();
  EXPECT_EQ(uid_of(pod()), uid);
}

TEST_F(K8sChangedPod, ALeaseThatNamesAnotherAgentsPodIsNotBelieved) {
  auto first = std::make_unique<Gateway>(options());
  ASSERT_EQ(Caller(*first, "b").run("echo secret > file").at("exit_code"), 0);
  ASSERT_EQ(Caller(*first, "a").run("true").at("exit_code"), 0);
  const std::string id_a = id_of(Caller(*first, "a")), id_b = id_of(Caller(*first, "b"));
  Json of_a = api_->get(resource("leases", id_a), usual());
  const Json of_b = api_->get(resource("leases", id_b), usual());
  const std::string forged = of_b.at("metadata").at("annotations").at(kRecord);
  of_a["metadata"]["annotations"][kRecord] = forged;
  api_->replace(resource("leases", id_a), of_a, usual());
  const std::string claim = Json::parse(forged).at("claim"), claim_uid = Json::parse(forged).at("claim_uid");
  const auto second = again(first, options());
  const Caller a(*second, "a");
  EXPECT_EQ(a.exec("cat file").text.find("secret"), std::string::npos);
  a.call("DELETE", "/sandboxes/a?purge=true");
  EXPECT_EQ(Caller(*second, "b").out("cat file"), "secret\n");
  const Json there = api_->get(resource("persistentvolumeclaims", claim), usual());
  EXPECT_EQ(uid_of(there), claim_uid);
  EXPECT_FALSE(there.at("metadata").contains("deletionTimestamp"));
}

// Each is tried: no file that the kubelet or the runtime mounts from the node can be written.
TEST_F(K8sChangedPod, NoFileOfTheNodeCanBeFilled) {
  Gateway gateway(options());
  const Caller me(gateway, "a");
  EXPECT_THAT(me.out("ls /dev/termination-log 2>&1 || true"), testing::HasSubstr("No such file"));
  const std::string log = kTerminationLog;
  EXPECT_EQ(me.out("chmod 777 /run/isogate/bin/closed 2>/dev/null; echo x 2>/dev/null > " + log +
                   " || echo refused; cat " + log + " 2>/dev/null || echo refused; grep -c " + log +
                   " /proc/self/mountinfo"),
            "refused\nrefused\n1\n")
      << "it exists, and nobody can reach it";
  EXPECT_EQ(
      me.out("while read -r _ _ _ _ at _; do [ -f \"$at\" ] && : 2>/dev/null >> \"$at\" && echo \"$at\"; "
             "done < /proc/self/mountinfo; true"),
      "");
}

}  // namespace
}  // namespace isogate::k8s
