#include "plugins/k8s/config.h"

#include <algorithm>

#include "isogate/backend.hpp"
#include "plugins/common/config_checks.h"
#include "plugins/common/strict_limits.h"
#include "plugins/k8s/pod/template.h"

namespace isogate::k8s {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(AccessConfig, kubeconfig, context, in_cluster,
                                                allow_unverified_cluster)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SecretFiles, secret, target)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(SharedClaim, prefix, claim)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(
    Config, image, runner_image, runner_program, pull_policy, pull_secrets, memory_mb, memory_request_mb,
    cpus, cpu_request, ephemeral_mb, tmp_mb, shm_mb, uid, workspace_mb, storage_class, access_mode,
    runtime_class, must_not_reach, kubelet_ports, secrets, shared, warm_pool, open_timeout_sec,
    busy_timeout_sec, ready_timeout_sec, node_timeout_sec, orphaned_after_sec, max_lifetime_sec,
    liveness_interval_sec, liveness_patience_sec, provision, sandbox_pool, job_backoff_limit, job_ttl_sec,
    allow_unenforced_admission, allow_unenforced_network, allow_weaker_template)

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

Config taken_from(const Json& json) {
  Config config = json;
  json.get_to(config.access);
  config.access.name_space = json.value("namespace", "");
  config.workspace = json.value("workspace", "claim") == "empty_dir" ? Place::kEmptyDir : Place::kClaim;
  config.adds_names = json.value("names", "image") == "added";
  config.vm = json.value("isolation", "container") == "vm";
  config.open_network = json.value("network", "none") == "open";
  if (json.value("transport", "stream") == "exec") config.transport = RunnerTransport::kExec;
  config.pod_template = json.value("template", Json::object());
  for (const Json& each : json.value("egress_to", Json::array()))
    config.egress_to.push_back({each.at("cidr"), each.value("ports", std::vector<uint16_t>())});
  const Json env = json.value("env", Json::object());
  for (const auto& [key, value] : env.items()) config.env.emplace_back(key, value.get<std::string>());
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

void to_json(Json& json, Provision provision) { json = name_of(provision); }

void from_json(const Json& json, Provision& provision) {
  const auto row = std::find_if(std::begin(kProvisions), std::end(kProvisions),
                                [&json](const auto& each) { return json == each.second; });
  if (row == std::end(kProvisions)) throw Json::other_error::create(501, "no such provision", &json);
  provision = row->first;
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
