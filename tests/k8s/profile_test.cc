#include "plugins/k8s/pod/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lib/net/transport.h"
#include "plugins/k8s/pod/egress.h"
#include "plugins/k8s/pod/template.h"

namespace isogate::k8s {
namespace {

Parts some_parts() {
  Parts parts;
  parts.owner = {"instance", "k8s", "isg-aaaaaaaaaaaaaaaaaaaaaaaaaa"};
  parts.tenant = "Ténant / 1";
  parts.agent_id = "a";
  parts.lease_uid = "11111111-2222-3333-4444-555555555555";
  parts.pod = parts.owner.sandbox_id + "-0123abcd";
  parts.shell = "/bin/bash";
  parts.shared = {"data"};
  return parts;
}

Json pod(const std::string& config_json = "") {
  const Config config = parse_config(config_json);
  return pod_of(config, some_parts(), limits_of(config, {}));
}

const Json& named(const Json& list, const std::string& name) {
  for (const Json& each : list)
    if (each.at("name") == name) return each;
  static const Json kNone;
  return kNone;
}

TEST(K8sProfile, IsRestrictedByDefault) {
  const Json made = pod();
  const Json& spec = made.at("spec");
  for (const char* off : {"automountServiceAccountToken", "enableServiceLinks", "hostNetwork", "hostPID",
                          "hostIPC", "shareProcessNamespace"})
    EXPECT_EQ(spec.at(off), false) << off;
  EXPECT_EQ(spec.at("restartPolicy"), "Never");
  EXPECT_EQ(spec.at("securityContext").at("runAsNonRoot"), true);
  EXPECT_EQ(spec.at("securityContext").at("runAsUser"), 10000);
  EXPECT_EQ(spec.at("securityContext").at("seccompProfile").at("type"), "RuntimeDefault");
  EXPECT_FALSE(spec.contains("serviceAccountName"));
  for (const char* kind : {"initContainers", "containers"})
    for (const Json& each : spec.at(kind)) {
      const Json& context = each.at("securityContext");
      EXPECT_EQ(context.at("allowPrivilegeEscalation"), false);
      EXPECT_EQ(context.at("privileged"), false);
      EXPECT_EQ(context.at("readOnlyRootFilesystem"), true);
      EXPECT_EQ(context.at("capabilities"), (Json{{"drop", {"ALL"}}}));
      EXPECT_EQ(each.at("resources").at("limits").at("memory"), "536870912");
      EXPECT_EQ(each.at("resources").at("limits").at("cpu"), "1000m");
      EXPECT_FALSE(each.contains("env"));
    }
}

// Beside it, another one's programs may use it.
TEST(K8sProfile, OnlyThePodsFirstRunnerEmptiesItsMemory) {
  const Json first = named(pod().at("spec").at("containers"), kContainer).at("command");
  EXPECT_THAT(first.get<std::vector<std::string>>(), testing::Contains("--scratch"));
  EXPECT_THAT(stdio_command(some_parts()), testing::Not(testing::Contains("--scratch")));
}

TEST(K8sProfile, NoVolumeIsOfTheNode) {
  const Json made = pod(R"({"secrets": [{"secret": "token", "target": "/run/secrets/token"}],
                            "shared": [{"prefix": "data", "claim": "datasets"}]})");
  for (const Json& volume : made.at("spec").at("volumes"))
    for (const auto& [kind, value] : volume.items())
      EXPECT_TRUE(kind == "name" || kind == "emptyDir" || kind == "persistentVolumeClaim" || kind == "secret")
          << kind;
  const Json& mounts = made.at("spec").at("containers").at(0).at("volumeMounts");
  const auto read_only = [&](const std::string& name) { return named(mounts, name).at("readOnly") == true; };
  EXPECT_TRUE(read_only("runner"));
  EXPECT_TRUE(read_only("secret-0"));
  EXPECT_TRUE(read_only("shared-0"));
  EXPECT_FALSE(read_only("workspace"));
  EXPECT_EQ(named(mounts, "shared-0").at("mountPath"), "/mnt/data");
}

TEST(K8sProfile, NamesAreAddedOnRequestByTheImagesOwnFiles) {
  EXPECT_EQ(pod().at("spec").at("initContainers").size(), 1u);
  const Json made = pod(R"({"names": "added", "image": "team/tools:1"})");
  const Json& spec = made.at("spec");
  const Json &init = named(spec.at("initContainers"), "names"), &main = spec.at("containers").at(0);
  EXPECT_EQ(spec.at("initContainers").at(1), init) << "the runner is installed first";
  EXPECT_EQ(init.at("image"), "team/tools:1");
  EXPECT_EQ(init.at("command").at(0), kRunner) << "no program of the image runs";
  EXPECT_EQ(init.at("workingDir"), "/") << "this user may not be able to enter the image's own";
  EXPECT_EQ(init.at("securityContext"), main.at("securityContext"));
  EXPECT_EQ(init.at("resources"), main.at("resources"));
  EXPECT_EQ(named(init.at("volumeMounts"), "runner").at("readOnly"), true);
  for (const std::string file : {"passwd", "group"}) {
    const Json& seen = named(main.at("volumeMounts"), file);
    EXPECT_EQ(seen.at("mountPath"), "/etc/" + file);
    EXPECT_EQ(seen.at("subPath"), file);
    EXPECT_EQ(seen.at("readOnly"), true);
    EXPECT_TRUE(named(spec.at("volumes"), file).contains("emptyDir"));
    EXPECT_EQ(named(init.at("volumeMounts"), file).at("readOnly"), false);
  }
}

TEST(K8sProfile, EverythingBelongsToTheLease) {
  const Config config;
  const Parts parts = some_parts();
  for (const Json& object : {pod_of(config, parts, limits_of(config, {})),
                             claim_of(config, parts, limits_of(config, {})), policy_of(config, parts)}) {
    EXPECT_TRUE(carries(object, parts.owner));
    EXPECT_EQ(object.at("metadata").at("ownerReferences").at(0).at("uid"), parts.lease_uid);
    EXPECT_EQ(object.at("metadata").at("annotations").at("isogate.io/tenant"), parts.tenant);
  }
  Owner other = parts.owner;
  other.instance = "another";
  EXPECT_FALSE(carries(claim_of(config, parts, limits_of(config, {})), other));
  EXPECT_FALSE(carries(Json::object(), parts.owner));
  EXPECT_FALSE(carries(Json{{"metadata", {{"labels", nullptr}}}}, parts.owner));
}

TEST(K8sProfile, MalformedMetadataHasNoOwner) {
  const Owner owner = some_parts().owner;
  const Json labels = labels_of(owner);
  const Json good = {{"metadata", {{"labels", labels}, {"ownerReferences", {{{"uid", "u"}}}}}}};
  ASSERT_TRUE(carries(good, owner) && belongs_to(good, "u"));
  for (const Json& odd : {Json(), Json(7), Json("metadata"), Json::array({good}), Json{{"metadata", nullptr}},
                          Json{{"metadata", "x"}}, Json{{"metadata", {1, 2}}},
                          Json{{"metadata", {{"labels", "x"}, {"ownerReferences", "u"}}}},
                          Json{{"metadata", {{"labels", {1}}, {"ownerReferences", {{"uid", "u"}}}}}},
                          Json{{"metadata", {{"labels", 7}, {"ownerReferences", {"u", 7, nullptr}}}}},
                          Json{{"metadata", {{"ownerReferences", {{{"uid", 7}}, {{"uid", {"u"}}}}}}}}}) {
    EXPECT_FALSE(carries(odd, owner)) << odd;
    EXPECT_FALSE(belongs_to(odd, "u")) << odd;
    EXPECT_FALSE(belongs_to(odd, "")) << odd;
  }
  for (const auto& [label, value] : labels.items()) {
    Json odd = good;
    odd["metadata"]["labels"][label] = Json::array({value});
    EXPECT_FALSE(carries(odd, owner)) << label;
  }
  EXPECT_FALSE(belongs_to(Json{{"metadata", {{"ownerReferences", {Json::object()}}}}}, ""));
  const Owner nobody{owner.instance, owner.backend, ""};
  EXPECT_FALSE(carries(Json{{"metadata", {{"labels", labels_of(nobody)}}}}, nobody));
}

TEST(K8sProfile, APolicyDeniesAllButWhatIsSpelledOut) {
  const Json none = policy_of(parse_config(""), some_parts()).at("spec");
  EXPECT_EQ(none.at("policyTypes"), Json({"Ingress", "Egress"}));
  EXPECT_EQ(none.at("egress"), Json::array());
  EXPECT_EQ(none.at("ingress"), Json::array());
  const Json some =
      policy_of(parse_config(R"({"egress_to": [{"cidr": "10.1.0.0/16", "ports": [3128]}]})"), some_parts());
  EXPECT_EQ(some.at("spec").at("egress").at(0).at("to").at(0).at("ipBlock").at("cidr"), "10.1.0.0/16");
  EXPECT_EQ(some.at("spec").at("egress").at(0).at("ports").at(0).at("port"), 3128);
  const Json open = policy_of(parse_config(R"({"network": "open"})"), some_parts());
  EXPECT_EQ(open.at("spec").at("egress"), Json::array({Json::object()}));
  EXPECT_EQ(open.at("spec").at("ingress"), Json::array());
}

TEST(K8sProfile, ADigestTellsOtherSettingsFromAnotherPod) {
  const Config config;
  Parts parts = some_parts();
  const std::string digest = profile_digest(config, parts, limits_of(config, {}));
  parts.pod += "x";
  parts.lease_uid += "x";
  EXPECT_EQ(profile_digest(config, parts, limits_of(config, {})), digest);
  Limits more;
  more.set(ISOGATE_LIMIT_MEMORY_BYTES, 1 << 30);
  EXPECT_NE(profile_digest(config, parts, limits_of(config, more)), digest);
  EXPECT_NE(profile_digest(parse_config(R"({"provision": "job"})"), parts, limits_of(config, {})), digest);
  EXPECT_NE(profile_digest(parse_config(R"({"network": "open"})"), parts, limits_of(config, {})), digest);
}

TEST(K8sProfile, ATemplateIsLaidOverIt) {
  const Json made = pod(R"({"template": {"metadata": {"labels": {"team": "a"}},
    "spec": {"nodeSelector": {"disk": "ssd"}}}})");
  EXPECT_EQ(made.at("metadata").at("labels").at("team"), "a");
  EXPECT_TRUE(carries(made, some_parts().owner));
  EXPECT_EQ(made.at("spec").at("nodeSelector").at("disk"), "ssd");
  const Json weaker = pod(R"({"allow_weaker_template": true, "template": {"spec": {"dnsConfig": null,
    "containers": [{"name": "sandbox", "tty": true}, {"name": "more", "image": "x"}]}}})");
  EXPECT_EQ(weaker.at("spec").at("containers").size(), 2u);
  EXPECT_EQ(weaker.at("spec").at("containers").at(0).at("tty"), true);
  EXPECT_EQ(weaker.at("spec").at("containers").at(0).at("securityContext").at("privileged"), false);
  EXPECT_FALSE(weaker.at("spec").contains("dnsConfig"));
}

TEST(K8sProfile, LabelsHoldWhatLabelsMay) {
  EXPECT_EQ(label_value("a-b_c.9"), "a-b_c.9");
  for (const std::string& text :
       {std::string(), std::string("a b"), std::string("-a"), std::string(64, 'a')}) {
    EXPECT_EQ(label_value(text).substr(0, 2), "x-");
    EXPECT_LE(label_value(text).size(), 63u);
  }
}

// Admission that refuses one of them refuses the one thing that was added.
TEST(K8sProfile, EachEscapeIsOurOwnPodWithOneThingMore) {
  const Config config = parse_config("");
  const nlohmann::json own = pod_of(config, {}, limits_of(config, {}));
  const auto all = escapes_of(own);
  ASSERT_EQ(all.size(), 4u);
  for (const Escape& each : all) {
    EXPECT_NE(each.pod, own) << each.what;
    EXPECT_EQ(each.pod["metadata"], own["metadata"]) << each.what;
    EXPECT_EQ(each.pod["spec"]["containers"][0]["resources"], own["spec"]["containers"][0]["resources"]);
    EXPECT_EQ(each.pod["spec"]["containers"][0]["image"], own["spec"]["containers"][0]["image"]) << each.what;
  }
}

TEST(K8sEgress, TriesWhatAClusterHasUnlessItIsAllowed) {
  ApiServers servers{{"10.9.8.7", "fd00::9"}, 6443};
  EXPECT_EQ(targets_of(parse_config(R"({"must_not_reach": ["10.0.0.1:22"]})"), servers, {"10.1.1.1", {}}),
            (std::vector<std::string>{"169.254.169.254:80", "10.0.0.1:22", "hop:10250", "10.1.1.1:10250",
                                      "hop:10255", "10.1.1.1:10255", "10.9.8.7:6443", "[fd00::9]:6443"}));
  servers.addresses = {"127.0.0.1", "::1"};
  EXPECT_EQ(targets_of(parse_config(R"({"kubelet_ports": [10250]})"), servers, {"fd00::1", {10260}}),
            (std::vector<std::string>{"169.254.169.254:80", "hop:10250", "[fd00::1]:10250", "hop:10260",
                                      "[fd00::1]:10260"}));
  EXPECT_EQ(targets_of(parse_config(R"({"egress_to": [{"cidr": "10.0.0.0/8"}]})"), servers, {"10.1.1.1", {}}),
            std::vector<std::string>{"169.254.169.254:80"});
  EXPECT_TRUE(targets_of(parse_config(R"({"network": "open"})"), servers, {"10.1.1.1", {}}).empty());
}

TEST(K8sEgress, ANodesOwnObjectNamesItsKubeletsPort) {
  const Json node = {{"status", {{"daemonEndpoints", {{"kubeletEndpoint", {{"Port", 10260}}}}}}}};
  EXPECT_EQ(kubelet_port_of(node), 10260);
  for (const Json& none : {Json(), Json::object(), Json{{"status", {{"daemonEndpoints", 1}}}}})
    EXPECT_EQ(kubelet_port_of(none), 0);
  for (const Json& port : {Json("10250"), Json(1e99), Json(-1), Json(65536), Json(true)})
    EXPECT_EQ(kubelet_port_of({{"status", {{"daemonEndpoints", {{"kubeletEndpoint", {{"Port", port}}}}}}}}),
              0);
}

TEST(K8sEgress, WhatAnswersIsReportedOnce) {
  EXPECT_EQ(what_answers("169.254.169.254:80 silent\n10.0.0.1:10250 refused\n10.0.0.1:10250 refused\n"
                         "10.0.0.1:443 connected\n"),
            "10.0.0.1:10250 (refused), 10.0.0.1:443 (connected)");
}

TEST(K8sEgress, TheApiServersNameIsResolvedHere) {
  const auto found = net::addresses_of("localhost", Budget(Budget::kUsual));
  EXPECT_THAT(found, testing::Contains("127.0.0.1"));
  EXPECT_EQ(net::addresses_of("10.9.8.7", Budget(Budget::kUsual)), std::vector<std::string>{"10.9.8.7"});
  EXPECT_THROW(net::addresses_of("no.such.name.invalid", Budget(Budget::kUsual)), net::NetError);
}

TEST(K8sEgress, OnlySilenceTwiceInARowIsSilence) {
  constexpr int kSilent = 0, kFailed = 1, kAnswers = 10, kUntried = 11;
  const auto of = [](std::vector<int> codes, int most_ms = 60'000, int untried_ms = 60'000) {
    size_t asked = 0;
    const isogate_call unbounded{sizeof unbounded, -1, INT64_MAX, {}};
    const sdk::Call call(unbounded);
    const Ran last = settle(
        [&] {
          return Ran{codes.at(asked++), ""};
        },
        std::chrono::milliseconds(1), std::chrono::milliseconds(most_ms),
        std::chrono::milliseconds(untried_ms), call);
    return std::pair(last.exit_code, asked);
  };
  EXPECT_EQ(of({kSilent, kSilent}), std::pair(kSilent, size_t{2}));
  EXPECT_EQ(of({kAnswers, kSilent, kAnswers, kSilent, kSilent}), std::pair(kSilent, size_t{5}));
  EXPECT_EQ(of({kSilent, kAnswers}, 0), std::pair(kAnswers, size_t{2})) << "the network let packets out late";
  EXPECT_EQ(of({kAnswers}, 0), std::pair(kAnswers, size_t{1}));
  EXPECT_EQ(of({kSilent, kUntried}, 0, 0), std::pair(kUntried, size_t{2}));
  EXPECT_EQ(of({kSilent, kUntried, kSilent, kSilent}, 0), std::pair(kSilent, size_t{4})) << "no address yet";
  EXPECT_EQ(of({kFailed}), std::pair(kFailed, size_t{1}));
}

}  // namespace
}  // namespace isogate::k8s
