#include "plugins/k8s/config.h"

#include <algorithm>

#include "isogate/backend.hpp"
#include "plugins/common/config_checks.h"
#include "plugins/common/strict_limits.h"
#include "plugins/k8s/pod/template.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

constexpr std::pair<Provision, const char*> kProvisions[] = {
    {Provision::kPod, "pod"},
    {Provision::kJob, "job"},
    {Provision::kSandbox, "sandbox"},
    {Provision::kSandboxClaim, "sandbox_claim"},
};

constexpr const char* kOwnPlaces[] = {"/workspace", "/run/isogate", "/proc", "/sys",
                                      "/dev",       "/tmp",         "/mnt",  "/home/agent/.local"};

void check_secrets(const Config& config) {
  std::vector<std::string> targets;
  std::vector<const char*> own(std::begin(kOwnPlaces), std::end(kOwnPlaces));
  if (config.adds_names) own.insert(own.end(), {"/etc/passwd", "/etc/group"});
  for (const SecretFiles& each : config.secrets) {
    check_target("target", each.target, own);
    targets.push_back(each.target);
  }
  check_apart(targets);
}

void check_settings(const Config& config) {
  check_limits("`k8s`", {config.memory_mb, config.cpus, 0});
  if (config.vm && config.runtime_class.empty())
    refuse("isolation: vm of `k8s` needs the runtime_class that makes virtual machines");
  if (config.vm && config.adds_names)
    refuse(
        "names: added of `k8s` is not for isolation: vm: a virtual machine may make its volumes itself, "
        "where "
        "no single file of them can be mounted");
  if (config.transport == RunnerTransport::kExec && config.warm_pool != 0)
    refuse("warm_pool of `k8s` needs transport: stream: a ready pod is kept by its stream");
  if (config.open_network && !config.egress_to.empty())
    refuse("egress_to of `k8s` is for network: none, and network is open: remove one of the two");
}

void check_pool(const Config& config) {
  const bool claims = config.provision == Provision::kSandboxClaim;
  if (claims && config.sandbox_pool.empty())
    refuse("provision: sandbox_claim of `k8s` needs the sandbox_pool, the name of a SandboxWarmPool");
  if (!claims && !config.sandbox_pool.empty())
    refuse("sandbox_pool of `k8s` is for provision: sandbox_claim alone");
  if (claims && config.workspace != Place::kEmptyDir)
    refuse(
        "provision: sandbox_claim of `k8s` needs workspace: empty_dir: the pool's pods are there before "
        "anybody's claim could be mounted");
  if (claims && config.warm_pool != 0)
    refuse("warm_pool of `k8s` is not for provision: sandbox_claim: the SandboxWarmPool has replicas");
  if (claims && config.max_lifetime_sec != 0)
    refuse(
        "max_lifetime_sec of `k8s` is not for provision: sandbox_claim: it would count from when the pool "
        "made a pod");
  if (claims && !config.pod_template.empty())
    refuse("template of `k8s` is not for provision: sandbox_claim: the SandboxTemplate defines the pods");
}

void take_lists(Config& config, const Json& json) {
  for (const Json& each : json.value("egress_to", Json::array()))
    config.egress_to.push_back({each.at("cidr"), each.value("ports", std::vector<uint16_t>())});
  for (const Json& each : json.value("secrets", Json::array()))
    config.secrets.push_back({each.at("secret"), each.at("target")});
  for (const Json& each : json.value("shared", Json::array()))
    config.shared.push_back({each.at("prefix"), each.at("claim")});
  const Json env = json.value("env", Json::object());
  for (const auto& [key, value] : env.items()) config.env.emplace_back(key, value.get<std::string>());
}

Config taken_from(const Json& json) {
  const Taker take{json};
  Config config;
  take("kubeconfig", config.access.kubeconfig);
  take("context", config.access.context);
  take("namespace", config.access.name_space);
  take("in_cluster", config.access.in_cluster);
  take("allow_unverified_cluster", config.access.allow_unverified_cluster);
  take("image", config.image);
  take("runner_image", config.runner_image);
  take("runner_program", config.runner_program);
  take("pull_policy", config.pull_policy);
  take("pull_secrets", config.pull_secrets);
  take("memory_mb", config.memory_mb);
  take("memory_request_mb", config.memory_request_mb);
  take("cpus", config.cpus);
  take("cpu_request", config.cpu_request);
  take("ephemeral_mb", config.ephemeral_mb);
  take("tmp_mb", config.tmp_mb);
  take("shm_mb", config.shm_mb);
  take("uid", config.uid);
  config.workspace = json.value("workspace", "claim") == "empty_dir" ? Place::kEmptyDir : Place::kClaim;
  config.adds_names = json.value("names", "image") == "added";
  take("workspace_mb", config.workspace_mb);
  take("storage_class", config.storage_class);
  take("access_mode", config.access_mode);
  take("runtime_class", config.runtime_class);
  config.vm = json.value("isolation", "container") == "vm";
  config.open_network = json.value("network", "none") == "open";
  take("must_not_reach", config.must_not_reach);
  if (json.value("transport", "stream") == "exec") config.transport = RunnerTransport::kExec;
  take("warm_pool", config.warm_pool);
  take("ready_timeout_sec", config.ready_timeout_sec);
  take("node_timeout_sec", config.node_timeout_sec);
  take("open_timeout_sec", config.open_timeout_sec);
  take("busy_timeout_sec", config.busy_timeout_sec);
  take("kubelet_ports", config.kubelet_ports);
  take("orphaned_after_sec", config.orphaned_after_sec);
  take("max_lifetime_sec", config.max_lifetime_sec);
  take("liveness_interval_sec", config.liveness_interval_sec);
  take("liveness_patience_sec", config.liveness_patience_sec);
  config.provision = provision_named(json.value("provision", "pod")).value();
  take("sandbox_pool", config.sandbox_pool);
  take("job_backoff_limit", config.job_backoff_limit);
  take("job_ttl_sec", config.job_ttl_sec);
  take("template", config.pod_template);
  take("allow_unenforced_admission", config.allow_unenforced_admission);
  take("allow_unenforced_network", config.allow_unenforced_network);
  take("allow_weaker_template", config.allow_weaker_template);
  take_lists(config, json);
  return config;
}

void add_limit(std::vector<std::string>& found, const std::string& what, bool none, bool more) {
  if (none) found.push_back(what + " of a sandbox has no limit");
  if (!none && more) found.push_back(what + " of a sandbox is more than by default");
}

}  // namespace

const char* name_of(Provision provision) {
  for (const auto& [each, name] : kProvisions)
    if (each == provision) return name;
  return "";
}

std::optional<Provision> provision_named(std::string_view name) {
  for (const auto& [each, its_name] : kProvisions)
    if (name == its_name) return each;
  return std::nullopt;
}

Config parse_config(std::string_view text) {
  Config config = config_from("k8s", text, taken_from);
  check_settings(config);
  check_pool(config);
  check_secrets(config);
  check_template(config.pod_template, config.allow_weaker_template);
  return config;
}

void check_shared(const Config& config, const std::vector<std::string>& prefixes) {
  for (const std::string& prefix : prefixes) {
    const auto names = [&](const SharedClaim& each) { return each.prefix == prefix; };
    if (std::none_of(config.shared.begin(), config.shared.end(), names))
      refuse("shared_dirs: `" + prefix +
             "` is a directory of this host, which no pod sees: name a claim with the same files in `shared` "
             "of `k8s`");
  }
  for (const SharedClaim& each : config.shared)
    if (std::find(prefixes.begin(), prefixes.end(), each.prefix) == prefixes.end())
      refuse("shared of `k8s`: there is no shared directory `" + each.prefix + "` among shared_dirs");
}

std::vector<std::string> relaxations_of(const Config& config) {
  const Config strict;
  std::vector<std::string> found;
  add_limit(found, "memory", config.memory_mb == 0, config.memory_mb > strict.memory_mb);
  add_limit(found, "CPU", config.cpus == 0, config.cpus > strict.cpus);
  add_limit(found, "ephemeral storage", config.ephemeral_mb == 0, config.ephemeral_mb > strict.ephemeral_mb);
  if (config.open_network) found.emplace_back("each sandbox has the network of its cluster");
  for (const Destination& each : config.egress_to) found.push_back("each sandbox may reach " + each.cidr);
  for (const SecretFiles& each : config.secrets)
    found.push_back("programs may read the Secret " + each.secret + " at " + each.target);
  if (config.access.allow_unverified_cluster)
    found.emplace_back("the API server need not prove who it is: allow_unverified_cluster");
  if (config.allow_unenforced_admission)
    found.emplace_back("the namespace may admit privileged pods: allow_unenforced_admission");
  if (config.allow_unenforced_network)
    found.emplace_back("packets of sandboxes may get out: allow_unenforced_network");
  if (config.allow_weaker_template)
    found.emplace_back("`template` may replace any field of a pod: allow_weaker_template");
  return found;
}

}  // namespace isogate::k8s
