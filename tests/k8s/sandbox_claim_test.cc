// Pods of a SandboxWarmPool of agents.x-k8s.io, taken by SandboxClaims.
#include "plugins/k8s/pod/sandbox_claim.h"

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/pod/weaker.h"
#include "tests/k8s/on_cluster.h"
#include "tests/support/yaml.h"
#include "tests_dirs.h"

namespace isogate::k8s {
namespace {

using test::Caller;
using test::eventually;
using test::Gateway;
using testing::HasSubstr;

constexpr const char* kClaims =
    R"({"provision": "sandbox_claim", "sandbox_pool": "p", "workspace": "empty_dir"})";

std::string shipped() {
  std::ifstream file(ISOGATE_SOURCE_DIR "/deploy/k8s/sandbox-pool.yaml");
  return (std::stringstream() << file.rdbuf()).str();
}

Json pod_of_claim(const Config& config) {
  Parts parts;
  parts.owner = {"instance", "k8s", "isg-a"};
  parts.lease_uid = "u";
  parts.pod = parts.claim = "isg-a-1";
  parts.shell = "/bin/bash";  // the gateway's default
  return pod_of(config, parts, limits_of(config, {}));
}

TEST(K8sSandboxClaim, NamesThePoolAndLabelsThePodWhereItMay) {
  const Config config = parse_config(kClaims);
  const Json pod = pod_of_claim(config), claim = sandbox_claim_of(config, pod);
  EXPECT_EQ(claim.at("spec").at("warmPoolRef").at("name"), "p");
  EXPECT_TRUE(carries(claim, {"instance", "k8s", "isg-a"}));
  EXPECT_TRUE(belongs_to(claim, "u"));
  const Json& labels = claim.at("spec").at("additionalPodMetadata").at("labels");
  EXPECT_EQ(labels.size(), 3u);
  for (const auto& [key, value] : labels.items())
    EXPECT_THAT(key, testing::StartsWith("isogate.sandbox.users.io/")) << value;
  Parts parts;
  parts.owner = {"instance", "k8s", "isg-a"};
  const Json selected = policy_of(config, parts).at("spec").at("podSelector").at("matchLabels");
  for (const auto& [key, value] : selected.items())
    EXPECT_EQ(labels.value(key, ""), value.get<std::string>());
}

TEST(K8sSandboxClaim, IsRefusedWithWhatNoPoolCanGive) {
  const auto why = [](const char* text) {
    try {
      (void)parse_config(text);
    } catch (const sdk::Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(why(kClaims), "");
  EXPECT_THAT(why(R"({"provision": "sandbox_claim", "workspace": "empty_dir"})"), HasSubstr("sandbox_pool"));
  EXPECT_THAT(why(R"({"provision": "sandbox_claim", "sandbox_pool": "p"})"), HasSubstr("empty_dir"));
  EXPECT_THAT(why(R"({"sandbox_pool": "p"})"), HasSubstr("sandbox_claim alone"));
  EXPECT_THAT(
      why(R"({"provision": "sandbox_claim", "sandbox_pool": "p", "workspace": "empty_dir", "warm_pool": 2})"),
      HasSubstr("replicas"));
  EXPECT_THAT(why(R"({"provision": "sandbox_claim", "sandbox_pool": "p", "workspace": "empty_dir",
                      "template": {"spec": {"nodeName": "n"}}})"),
              HasSubstr("SandboxTemplate"));
}

TEST(K8sSandboxClaim, TheShippedTemplateIsNoWeakerThanTheDefaults) {
  const Json made_of = test::documents_of(shipped()).at(0);
  Json asked = pod_of_claim(parse_config(kClaims)), given = made_of.at("spec").at("podTemplate");
  asked["metadata"]["labels"] = given["metadata"]["labels"] = Json::object();
  EXPECT_EQ(weaker_than(asked, given), "");
  EXPECT_EQ(other_image(asked, given), "");
  EXPECT_EQ(made_of.at("spec").at("networkPolicyManagement"), "Unmanaged");
  given["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = false;
  EXPECT_THAT(weaker_than(asked, given), HasSubstr("readOnlyRootFilesystem"));
}

TEST(K8sSandboxClaim, EveryContainersImageIsCompared) {
  const Json asked = pod_of_claim(parse_config(R"({"names": "added", "image": "team/tools:1"})"));
  EXPECT_EQ(other_image(asked, asked), "");
  for (const char* list : {"initContainers", "containers"})
    for (size_t i = 0; i < asked.at("spec").at(list).size(); ++i) {
      Json given = asked;
      given["spec"][list][i]["image"] = "another:1";
      EXPECT_THAT(other_image(asked, given),
                  HasSubstr("[" + asked.at("spec").at(list).at(i).at("name").get<std::string>() + "]"));
    }
}

void replace_all(std::string& text, const std::string& what, const std::string& with) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

class K8sSandboxPool : public OnCluster {
 protected:
  void SetUp() override {
    OnCluster::SetUp();
    if (!IsSkipped()) install_agents();
  }
  void TearDown() override {
    OnCluster::TearDown();
    if (!api_ || name_.empty()) return;
    remove("sandboxwarmpools", name_);
    remove("sandboxtemplates", name_);
    EXPECT_TRUE(eventually(kGone, [&] { return pods_of_pool().empty(); }));
  }

  // The shipped pool, with the images and sizes of these tests; `change`: to its template's spec.
  void make_pool(int replicas, const std::function<void(Json&)>& change = {}) {
    std::string text = shipped();
    replace_all(text, "isogate-runner:latest", test::cluster_runner_image());
    replace_all(text, "isogate-sandbox:latest", "isogate-test:base");
    replace_all(text, "IfNotPresent", "Never");
    replace_all(text, "/bin/bash", "/bin/sh");
    replace_all(text, "ephemeral-storage: 1Gi", "ephemeral-storage: 256Mi");
    replace_all(text, "sizeLimit: 1Gi", "sizeLimit: 64Mi");
    replace_all(text, "name: isogate\n", "name: pool-" + instance_ + "\n");
    auto documents = test::documents_of(text);
    documents.at(0)["spec"]["podTemplate"]["metadata"]["labels"]["isogate.io/test"] = instance_;
    documents.at(1)["spec"]["replicas"] = replicas;
    if (change) change(documents.at(0)["spec"]);
    name_ = "pool-" + instance_;
    api_->create(resource("sandboxtemplates"), documents.at(0), usual());
    api_->create(resource("sandboxwarmpools"), documents.at(1), usual());
  }
  std::vector<Json> pods_of_pool() const {
    return api_->list(resource("pods"), {"isogate.io/test=" + instance_, "", 500}, usual()).at("items");
  }
  // Waits until the controller reports one as ready; the uids of all.
  std::vector<std::string> await_ready() const {
    EXPECT_TRUE(eventually(90, [&] {
      const Json pool = api_->get(resource("sandboxwarmpools", name_), usual());
      return pool.value("status", Json::object()).value("readyReplicas", 0) > 0;
    }));
    std::vector<std::string> uids;
    for (const Json& each : pods_of_pool()) uids.push_back(uid_of(each));
    return uids;
  }
  test::GatewayOptions claiming(const std::string& more = {}) const {
    return options("provision: sandbox_claim, workspace: empty_dir, sandbox_pool: pool-" + instance_, more);
  }
  // The pod of the only claim.
  Json claimed() const {
    const Json claim = all("sandboxclaims").at(0);
    const Json sandbox =
        api_->get(resource("sandboxes", claim.at("status").at("sandbox").at("name")), usual());
    EXPECT_TRUE(belongs_to(sandbox, uid_of(claim)));
    for (const Json& each : pods_of_pool())
      if (belongs_to(each, uid_of(sandbox))) return each;
    return Json();
  }
  std::string name_;
};

TEST_F(K8sSandboxPool, GivesOneOfThePodsThatAreThere) {
  make_pool(1);
  const auto ready = await_ready();
  Gateway gateway(claiming());
  const Caller me(gateway, "a"), other(gateway, "b");
  ASSERT_EQ(me.run("echo mine > kept; id -u").at("stdout"), "10000\n");
  const Json claim = all("sandboxclaims").at(0), pod = claimed();
  EXPECT_TRUE(belongs_to(claim, uid_of(all("leases").at(0))));
  EXPECT_THAT(ready, testing::ElementsAre(uid_of(pod))) << "the one that was ready";
  EXPECT_EQ(other.out("ls"), "") << "another pod, when the pool has none left";
  EXPECT_EQ(me.out("cat kept"), "mine\n");
  EXPECT_EQ(all("sandboxclaims").size(), 2u);
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  ASSERT_TRUE(succeeded(other.call("DELETE", "/sandboxes/b?purge=true")));
  expect_nothing_left();
  EXPECT_FALSE(await_ready().empty()) << "the controller refills it";
}

TEST_F(K8sSandboxPool, AKilledGatewayReattachesItsPod) {
  make_pool(1);
  Gateway first(claiming());
  ASSERT_EQ(Caller(first, "a").run("echo here > /tmp/mark").at("exit_code"), 0);
  const std::string uid = uid_of(claimed());
  first.kill();
  Gateway second(after(first, claiming()));
  EXPECT_TRUE(eventually(30, [&] {
    return Caller(second, "a").get("/sandboxes").body.at("sandboxes").size() == 1;
  })) << "re-attached before anybody calls";
  EXPECT_EQ(Caller(second, "a").out("cat /tmp/mark"), "here\n");
  EXPECT_EQ(uid_of(claimed()), uid);
  second.stop();
  expect_nothing_left();
}

TEST_F(K8sSandboxPool, ItsDeletedPodIsReportedAtOnceAndLostWithItsFiles) {
  make_pool(1);
  Gateway gateway(claiming());
  const Caller me(gateway, "a");
  ASSERT_EQ(me.run("echo mine > kept").at("exit_code"), 0);
  const auto stream = started(me, "sleep 60");
  api_->remove(resource("pods", name_of(claimed())), Json(), usual());
  const auto events = stream->rest();
  EXPECT_EQ(events.back().at("outcome"), "unknown") << events.back();
  EXPECT_TRUE(refused(me.exec("true"), 410, "sandbox_lost")) << "never in the pod that the controller made";
  ASSERT_TRUE(succeeded(me.call("DELETE", "/sandboxes/a?purge=true")));
  EXPECT_EQ(me.out("ls"), "");
}

TEST_F(K8sSandboxPool, AWeakerTemplateIsRefusedAndWhereItIsNamed) {
  EXPECT_THAT(detail_of(claiming()), HasSubstr("there is no SandboxWarmPool"));
  make_pool(0, [](Json& spec) {
    spec["podTemplate"]["spec"]["containers"][0]["securityContext"]["readOnlyRootFilesystem"] = false;
  });
  EXPECT_THAT(detail_of(claiming()), HasSubstr("securityContext.readOnlyRootFilesystem is not true"));
}

TEST_F(K8sSandboxPool, ATemplateThatLetsPacketsOutIsRefused) {
  make_pool(0, [](Json& spec) { spec.erase("networkPolicyManagement"); });
  EXPECT_THAT(detail_of(claiming()), HasSubstr("lets packets through"));
}

TEST_F(K8sSandboxPool, AnotherImageIsRefused) {
  make_pool(
      0, [](Json& spec) { spec["podTemplate"]["spec"]["initContainers"][0]["image"] = "isogate-test:base"; });
  EXPECT_THAT(detail_of(claiming()), HasSubstr("initContainers[runner].image is not"));
}

// The template may be changed between a probe and a call.
TEST_F(K8sSandboxPool, ATemplateThatBecomesWeakerGivesNoMorePods) {
  make_pool(1);
  await_ready();
  Gateway gateway(claiming());
  ASSERT_EQ(Caller(gateway, "a").run("true").at("exit_code"), 0);
  Json made_of = api_->get(resource("sandboxtemplates", name_), usual());
  made_of["spec"]["podTemplate"]["spec"]["hostPID"] = true;
  api_->replace(resource("sandboxtemplates", name_), made_of, usual());
  const test::Answer answer = Caller(gateway, "b").exec("true");
  EXPECT_EQ(answer.status, 503) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("spec.hostPID is not false"));
  EXPECT_EQ(Caller(gateway, "a").run("true").at("exit_code"), 0) << "a measured pod keeps running";
}

TEST_F(K8sSandboxPool, APodOfMoreThanIsAskedForIsNotTaken) {
  make_pool(1);
  await_ready();
  Gateway gateway(options("provision: sandbox_claim, workspace: empty_dir, sandbox_pool: " + name_, "",
                          "limits: {memory_mb: 64}"));
  const test::Answer answer = Caller(gateway, "a").exec("true");
  EXPECT_EQ(answer.status, 503) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("limits.memory is more than"));
  EXPECT_TRUE(eventually(kGone, [&] { return all("sandboxclaims").empty(); }));
}

// The last test: it takes a while until the controller sees its own version again.
TEST_F(K8sSandboxPool, AnOlderVersionIsUsedWhereTheClusterServesNoNewer) {
  const Resource definition{"apiextensions.k8s.io/v1", "", "customresourcedefinitions",
                            "sandboxes.agents.x-k8s.io"};
  const auto serve_newer = [&](bool served) {
    Json crd = api_->get(definition, usual());
    for (Json& version : crd["spec"]["versions"])
      if (version["name"] == "v1beta1") version["served"] = served;
    api_->replace(definition, crd, usual());
    EXPECT_TRUE(eventually(30, [&] {
      const Json group = api_->call({"GET", "/apis/agents.x-k8s.io"}, usual());
      return (group.dump().find("v1beta1") != std::string::npos) == served;
    }));
  };
  serve_newer(false);
  {
    const Gateway gateway(options("provision: sandbox"));  // ready only when a trial Sandbox is admitted
    EXPECT_THAT(Caller(gateway, "a").get("/backends").text, HasSubstr("\"available\""));
  }
  serve_newer(true);
}

}  // namespace
}  // namespace isogate::k8s
