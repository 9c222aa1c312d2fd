#include "plugins/k8s/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isogate/backend.hpp"
#include "plugins/k8s/config_schema.h"

namespace isogate::k8s {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

std::string refusal(const std::string& json) {
  try {
    (void)parse_config(json);
  } catch (const sdk::Error& error) {
    EXPECT_EQ(error.status(), ISOGATE_INVALID_ARGUMENT);
    return error.what();
  }
  return "";
}

TEST(K8sConfig, IsStrictWhereNothingIsSaid) {
  const Config config = parse_config("");
  EXPECT_EQ(config.memory_mb, 512u);
  EXPECT_EQ(config.cpus, 1.0);
  EXPECT_FALSE(config.open_network);
  EXPECT_FALSE(config.allow_unenforced_admission);
  EXPECT_FALSE(config.allow_unenforced_network);
  EXPECT_FALSE(config.allow_weaker_template);
  EXPECT_FALSE(config.access.allow_unverified_cluster);
  EXPECT_THAT(relaxations_of(config), IsEmpty());
}

TEST(K8sConfig, TheSchemaIsJsonAndNamesTheSameDefaults) {
  const auto schema = nlohmann::json::parse(kConfigSchema);
  const Config config;
  const auto& properties = schema.at("properties");
  const auto is = [&](const char* name, const auto& value) {
    EXPECT_EQ(properties.at(name).at("default"), nlohmann::json(value)) << name;
  };
  is("image", config.image);
  is("runner_image", config.runner_image);
  is("runner_program", config.runner_program);
  is("pull_policy", config.pull_policy);
  is("memory_mb", config.memory_mb);
  is("memory_request_mb", config.memory_request_mb);
  is("cpus", config.cpus);
  is("cpu_request", 0);
  is("ephemeral_mb", config.ephemeral_mb);
  is("tmp_mb", config.tmp_mb);
  is("shm_mb", config.shm_mb);
  is("uid", config.uid);
  is("workspace_mb", config.workspace_mb);
  is("access_mode", config.access_mode);
  is("ready_timeout_sec", config.ready_timeout_sec);
  is("node_timeout_sec", config.node_timeout_sec);
  is("max_lifetime_sec", config.max_lifetime_sec);
  is("orphaned_after_sec", config.orphaned_after_sec);
  is("liveness_interval_sec", config.liveness_interval_sec);
  is("liveness_patience_sec", config.liveness_patience_sec);
  is("job_backoff_limit", config.job_backoff_limit);
  is("job_ttl_sec", config.job_ttl_sec);
  is("provision", "pod");
  is("workspace", "claim");
  is("network", "none");
  for (const auto& [name, property] : properties.items())
    EXPECT_TRUE(property.contains("description")) << name;
}

TEST(K8sConfig, EveryRelaxationIsListedInWords) {
  const Config config = parse_config(R"({"memory_mb": 0, "cpus": 4, "network": "open", "secrets": [
    {"secret": "token", "target": "/run/secrets/token"}], "allow_unenforced_admission": true,
    "allow_unenforced_network": true, "allow_weaker_template": true, "allow_unverified_cluster": true})");
  const auto relaxed = relaxations_of(config);
  for (const char* text : {"memory of a sandbox has no limit", "CPU of a sandbox is more",
                           "has the network of its cluster", "Secret token", "allow_unenforced_admission",
                           "allow_unenforced_network", "allow_weaker_template", "allow_unverified_cluster"})
    EXPECT_THAT(relaxed, Contains(HasSubstr(text)));
}

TEST(K8sConfig, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal(R"({"memory_mb": 8})"), HasSubstr("must be 0 or at least 32"));
  EXPECT_THAT(refusal(R"({"isolation": "vm"})"), HasSubstr("runtime_class"));
  EXPECT_THAT(refusal(R"({"isolation": "vm", "runtime_class": "kata", "names": "added"})"),
              HasSubstr("names"));
  EXPECT_THAT(refusal(R"({"network": "open", "egress_to": [{"cidr": "10.0.0.0/8"}]})"),
              HasSubstr("egress_to"));
  EXPECT_THAT(refusal(R"({"memory_mb": "much"})"), HasSubstr("does not fit its schema"));
  EXPECT_THAT(refusal("[]"), HasSubstr("not a JSON object"));
  for (const char* target :
       {"/workspace/x", "/run", "/run/isogate/bin", "/proc/x", "/tmp", "/dev/shm/x", "/a/../b"})
    EXPECT_NE(refusal(std::string(R"({"secrets": [{"secret": "s", "target": ")") + target + "\"}]}"), "")
        << target;
  for (const char* target : {"/etc/passwd", "/etc"}) {
    const std::string secret = std::string(R"("secrets": [{"secret": "s", "target": ")") + target + "\"}]}";
    EXPECT_EQ(refusal("{" + secret), "") << target;
    EXPECT_THAT(refusal(R"({"names": "added", )" + secret), HasSubstr("/etc/passwd")) << target;
  }
}

TEST(K8sConfig, ATemplateSaysWhereAPodRunsAndNotWhatItMay) {
  EXPECT_EQ(
      refusal(R"({"template": {"metadata": {"labels": {"team": "a"}}, "spec": {"nodeSelector": {"a": "b"},
    "tolerations": [], "priorityClassName": "low"}}})"),
      "");
  for (const char* field :
       {"hostNetwork", "containers", "volumes", "securityContext", "serviceAccountName", "hostPID",
        "automountServiceAccountToken", "initContainers", "runtimeClassName"}) {
    const std::string text = std::string(R"({"template": {"spec": {")") + field + "\": {}}}}";
    EXPECT_THAT(refusal(text), HasSubstr("allow_weaker_template")) << field;
    EXPECT_EQ(refusal(text.substr(0, text.size() - 1) + ", \"allow_weaker_template\": true}"), "");
  }
  for (const char* annotation :
       {"k8s.v1.cni.cncf.io/networks", "v1.multus-cni.io/default-network", "cni.projectcalico.org/ipAddrs",
        "container.apparmor.security.beta.kubernetes.io/sandbox", "seccomp.security.alpha.kubernetes.io/pod",
        "io.kubernetes.cri-o.Devices", "dev.gvisor.flag.network"}) {
    const std::string text =
        std::string(R"({"template": {"metadata": {"annotations": {")") + annotation + R"(": "x"}}})";
    EXPECT_THAT(refusal(text + "}"), HasSubstr("allow_weaker_template")) << annotation;
    EXPECT_EQ(refusal(text + ", \"allow_weaker_template\": true}"), "");
  }
  EXPECT_EQ(refusal(R"({"template": {"metadata": {"annotations": {"example.org/team": "a"}}}})"), "");
  EXPECT_THAT(refusal(R"({"template": {"metadata": {"labels": {"isogate.io/sandbox": "x"}}}})"),
              HasSubstr("for this backend to write"));
}

TEST(K8sConfig, EverySharedDirectoryHasAClaim) {
  const Config config = parse_config(R"({"shared": [{"prefix": "data", "claim": "datasets"}]})");
  EXPECT_NO_THROW(check_shared(config, {"data"}));
  EXPECT_THROW(check_shared(config, {"data", "more"}), sdk::Error);
  EXPECT_THROW(check_shared(config, {}), sdk::Error);
}

}  // namespace
}  // namespace isogate::k8s
