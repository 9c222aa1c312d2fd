#include "plugins/k8s/pod/profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lib/hash.h"
#include "lib/text.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/template.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMib = 1u << 20;
constexpr const char* kNames[] = {"passwd", "group"};

std::string mib(uint64_t number) { return std::to_string(number) + "Mi"; }

Json metadata_of(const Parts& parts, const std::string& name) {
  Json metadata = {
      {"name", name},
      {"labels", labels_of(parts.owner)},
      {"annotations", {{"isogate.io/tenant", parts.tenant}, {"isogate.io/agent", parts.agent_id}}}};
  if (!parts.lease_uid.empty())
    metadata["ownerReferences"] = {{{"apiVersion", "coordination.k8s.io/v1"},
                                    {"kind", "Lease"},
                                    {"name", parts.owner.sandbox_id},
                                    {"uid", parts.lease_uid}}};
  return metadata;
}

Json scratch(const std::string& name, uint64_t most_mb) {
  return {{"name", name}, {"emptyDir", {{"sizeLimit", mib(most_mb)}}}};
}

std::string bytes_of_workspace(const Limits& limits) {
  return std::to_string(limits.get(ISOGATE_LIMIT_DISK_BYTES));
}

Json volumes_of(const Config& config, const Parts& parts, const Limits& limits) {
  Json volumes = {scratch("runner", 64), scratch("tmp", config.tmp_mb), scratch("local", config.tmp_mb)};
  volumes.push_back(
      {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", mib(config.shm_mb)}}}});
  if (config.workspace == Place::kClaim)
    volumes.push_back({{"name", "workspace"}, {"persistentVolumeClaim", {{"claimName", parts.claim}}}});
  else
    volumes.push_back({{"name", "workspace"}, {"emptyDir", {{"sizeLimit", bytes_of_workspace(limits)}}}});
  if (config.adds_names)
    for (const char* file : kNames) volumes.push_back(scratch(file, 64));
  for (size_t i = 0; i < config.secrets.size(); ++i)
    volumes.push_back({{"name", "secret-" + std::to_string(i)},
                       {"secret", {{"secretName", config.secrets[i].secret}, {"defaultMode", 0440}}}});
  for (size_t i = 0; i < config.shared.size(); ++i)
    volumes.push_back(
        {{"name", "shared-" + std::to_string(i)},
         {"persistentVolumeClaim", {{"claimName", config.shared[i].claim}, {"readOnly", true}}}});
  return volumes;
}

Json mount(const std::string& name, const std::string& path, bool read_only) {
  return {{"name", name}, {"mountPath", path}, {"readOnly", read_only}};
}

Json mounts_of(const Config& config) {
  Json mounts = {mount("runner", kRunnerDirectory, true), mount("workspace", kWorkspace, false),
                 mount("tmp", "/tmp", false), mount("local", "/home/agent/.local", false),
                 mount("shm", "/dev/shm", false)};
  if (config.adds_names)
    for (const char* file : kNames) {
      mounts.push_back(mount(file, std::string("/etc/") + file, true));
      mounts.back()["subPath"] = file;
    }
  for (size_t i = 0; i < config.secrets.size(); ++i)
    mounts.push_back(mount("secret-" + std::to_string(i), config.secrets[i].target, true));
  for (size_t i = 0; i < config.shared.size(); ++i)
    mounts.push_back(mount("shared-" + std::to_string(i), "/mnt/" + config.shared[i].prefix, true));
  return mounts;
}

Json container_context() {
  return {{"allowPrivilegeEscalation", false},
          {"privileged", false},
          {"readOnlyRootFilesystem", true},
          {"runAsNonRoot", true},
          {"capabilities", {{"drop", {"ALL"}}}}};
}

// Memory is reserved in full; of what can be reclaimed, a tenth is.
Json resources_of(const Config& config, const Limits& limits) {
  Json most = Json::object(), least = Json::object();
  if (const uint64_t memory = limits.get(ISOGATE_LIMIT_MEMORY_BYTES); memory != 0) {
    most["memory"] = std::to_string(memory);
    least["memory"] = config.memory_request_mb == 0
                          ? most["memory"]
                          : Json(std::to_string(std::min(memory, config.memory_request_mb * kMib)));
  }
  if (const uint64_t cpu = limits.get(ISOGATE_LIMIT_CPU_MILLIS); cpu != 0) {
    most["cpu"] = std::to_string(cpu) + "m";
    const auto wish = static_cast<uint64_t>(config.cpu_request * 1000 + 0.5);
    const uint64_t request = wish == 0 ? cpu / 10 : std::min(wish, cpu);
    least["cpu"] = std::to_string(std::max<uint64_t>(1, request)) + "m";
  }
  if (config.ephemeral_mb != 0) {
    most["ephemeral-storage"] = mib(config.ephemeral_mb);
    least["ephemeral-storage"] = mib(std::max<uint64_t>(1, config.ephemeral_mb / 10));
  }
  return {{"limits", most}, {"requests", least}};
}

Json init_container(const Config& config, const Json& resources) {
  return {{"name", "runner"},
          {"image", config.runner_image},
          {"imagePullPolicy", config.pull_policy},
          {"command", {config.runner_program, "install", kRunnerDirectory}},
          {"securityContext", container_context()},
          {"resources", resources},
          {"volumeMounts", {mount("runner", kRunnerDirectory, false)}}};
}

const std::string& image_of(const Config& config, const Parts& parts) {
  return parts.image.empty() ? config.image : parts.image;
}

// It has the sandbox's image, whose files it copies; it runs no program of that image.
Json names_container(const Config& config, const Parts& parts, const Json& resources) {
  Json command = {kRunner, "names"}, mounts = {mount("runner", kRunnerDirectory, true)};
  for (const char* file : kNames) {
    const std::string directory = std::string(kNamesDirectory) + "/" + file;
    command.push_back(directory + "/" + file);
    mounts.push_back(mount(file, directory, false));
  }
  return {{"name", "names"},
          {"image", image_of(config, parts)},
          {"imagePullPolicy", config.pull_policy},
          {"command", std::move(command)},
          {"workingDir", "/"},
          {"terminationMessagePolicy", "FallbackToLogsOnError"},
          {"securityContext", container_context()},
          {"resources", resources},
          {"volumeMounts", std::move(mounts)}};
}

std::vector<std::string> runner_command(const char* mode, const Parts& parts) {
  std::vector<std::string> command = {kRunner, mode};
  for (const std::string& prefix : parts.shared) {
    command.emplace_back("--shared");
    command.push_back(prefix + "=/mnt/" + prefix);
  }
  if (!parts.shell.empty()) command.insert(command.end(), {"--shell", parts.shell});
  if (!parts.toolchain.empty()) command.insert(command.end(), {"--toolchain", parts.toolchain});
  return command;
}

Json main_container(const Config& config, const Parts& parts, const Limits& limits, const Json& resources) {
  std::vector<std::string> command = runner_command("serve", parts);
  command.insert(command.begin() + 2, {"--scratch", "/dev/shm"});
  for (std::string& option : disk_options(config, limits)) command.push_back(std::move(option));
  return {{"name", kContainer},
          {"image", image_of(config, parts)},
          {"imagePullPolicy", config.pull_policy},
          {"command", std::move(command)},
          {"terminationMessagePath", kTerminationLog},
          {"workingDir", kWorkspace},
          {"stdin", false},
          {"tty", false},
          {"securityContext", container_context()},
          {"resources", resources},
          {"volumeMounts", mounts_of(config)}};
}

Json pod_context(const Config& config) {
  return {{"runAsNonRoot", true},
          {"runAsUser", config.uid},
          {"runAsGroup", config.uid},
          {"fsGroup", config.uid},
          {"supplementalGroups", {config.uid}},
          {"fsGroupChangePolicy", "OnRootMismatch"},
          {"seccompProfile", {{"type", "RuntimeDefault"}}}};
}

Json spec_of(const Config& config, const Parts& parts, const Limits& limits) {
  const Json resources = resources_of(config, limits);
  Json spec = {{"automountServiceAccountToken", false},
               {"enableServiceLinks", false},
               {"hostNetwork", false},
               {"hostPID", false},
               {"hostIPC", false},
               {"shareProcessNamespace", false},
               {"hostname", "sandbox"},
               {"restartPolicy", "Never"},
               {"terminationGracePeriodSeconds", 2},
               {"securityContext", pod_context(config)},
               {"initContainers", {init_container(config, resources)}},
               {"containers", {main_container(config, parts, limits, resources)}},
               {"volumes", volumes_of(config, parts, limits)}};
  if (config.adds_names) spec["initContainers"].push_back(names_container(config, parts, resources));
  // Without a network there is no name server either.
  if (!config.open_network && config.egress_to.empty()) {
    spec["dnsPolicy"] = "None";
    spec["dnsConfig"] = {{"nameservers", {"127.0.0.1"}}};
  }
  if (!config.runtime_class.empty()) spec["runtimeClassName"] = config.runtime_class;
  if (config.max_lifetime_sec != 0) spec["activeDeadlineSeconds"] = config.max_lifetime_sec;
  for (const std::string& name : config.pull_secrets) spec["imagePullSecrets"].push_back({{"name", name}});
  return spec;
}

}  // namespace

std::string label_value(const std::string& text) {
  return is_name(text, "-_.") && is_alnum(text.back()) ? text : "x-" + sha256_hex(text).substr(0, 32);
}

Json labels_of(const Owner& owner) {
  return {{kLabelInstance, label_value(owner.instance)},
          {kLabelBackend, label_value(owner.backend)},
          {kLabelSandbox, owner.sandbox_id},
          {"app.kubernetes.io/managed-by", "isogate"}};
}

Json gateway_labels_of(const Owner& owner) {
  Json labels = labels_of(owner);
  labels.erase(kLabelSandbox);
  labels[kLabelGateway] = "true";
  return labels;
}

bool carries(const Json& object, const Owner& owner) {
  const Json& labels = member(member(object, "metadata"), "labels");
  const Json wanted = labels_of(owner);
  for (const auto& [key, value] : wanted.items())
    if (member(labels, key.c_str()) != value) return false;
  return !owner.sandbox_id.empty();
}

bool belongs_to(const Json& object, const std::string& uid) {
  const Json& owners = member(member(object, "metadata"), "ownerReferences");
  if (uid.empty() || !owners.is_array()) return false;
  return std::any_of(owners.begin(), owners.end(),
                     [&uid](const Json& each) { return text_at(each, "uid") == uid; });
}

namespace {

// sandbox.users.io is what controllers allow by default.
std::string label_of_pods(Provision kind, const std::string& label) {
  if (kind != Provision::kSandboxClaim) return label;
  return "isogate.sandbox.users.io" + label.substr(label.find('/'));
}

}  // namespace

Json pod_labels_of(Provision kind, const Owner& owner) {
  Json labels = labels_of(owner);
  if (kind != Provision::kSandboxClaim) return labels;
  Json allowed;
  for (const char* each : {kLabelInstance, kLabelBackend, kLabelSandbox})
    allowed[label_of_pods(kind, each)] = labels.at(each);
  return allowed;
}

Json own_labels_of(const Json& pod_labels) {
  Json labels = {{"app.kubernetes.io/managed-by", "isogate"}};
  for (const char* each : {kLabelInstance, kLabelBackend, kLabelSandbox})
    for (const Provision kind : {Provision::kPod, Provision::kSandboxClaim})
      if (const auto found = pod_labels.find(label_of_pods(kind, each)); found != pod_labels.end())
        labels[each] = *found;
  return labels;
}

std::string selector_of(const Owner& owner) { return pod_selector_of(Provision::kPod, owner); }

std::string pod_selector_of(Provision kind, const Owner& owner) {
  return label_of_pods(kind, kLabelInstance) + "=" + label_value(owner.instance) + "," +
         label_of_pods(kind, kLabelBackend) + "=" + label_value(owner.backend);
}

Limits limits_of(const Config& config, const Limits& asked) {
  const Limits configured{{ISOGATE_LIMIT_MEMORY_BYTES, config.memory_mb * kMib},
                          {ISOGATE_LIMIT_CPU_MILLIS, static_cast<uint64_t>(config.cpus * 1000 + 0.5)},
                          {ISOGATE_LIMIT_DISK_BYTES, config.workspace_mb * kMib}};
  return configured.overridden_by(asked);
}

Json lease_of(const Parts& parts) {
  Json lease = {{"apiVersion", "coordination.k8s.io/v1"},
                {"kind", "Lease"},
                {"metadata", metadata_of(parts, parts.owner.sandbox_id)},
                {"spec", Json::object()}};
  if (parts.ahead) lease["metadata"]["labels"][kLabelAhead] = "ready";
  return lease;
}

void give_lease(Json& lease, const Parts& taker) {
  const Json owned = metadata_of(taker, "");
  Json& metadata = lease.at("metadata");
  metadata["ownerReferences"] = owned.at("ownerReferences");
  metadata["annotations"].update(owned.at("annotations"));
  metadata["labels"][kLabelAhead] = "taken";
}

Json claim_of(const Config& config, const Parts& parts, const Limits& limits) {
  Json spec = {{"accessModes", {config.access_mode}},
               {"resources", {{"requests", {{"storage", bytes_of_workspace(limits)}}}}}};
  if (!config.storage_class.empty()) spec["storageClassName"] = config.storage_class;
  return {{"apiVersion", "v1"},
          {"kind", "PersistentVolumeClaim"},
          {"metadata", metadata_of(parts, parts.claim)},
          {"spec", std::move(spec)}};
}

Json policy_of(const Config& config, const Parts& parts) {
  Json rules = Json::array();
  for (const Destination& each : config.egress_to) {
    Json rule = {{"to", {{{"ipBlock", {{"cidr", each.cidr}}}}}}};
    for (const uint16_t port : each.ports) rule["ports"].push_back({{"protocol", "TCP"}, {"port", port}});
    rules.push_back(std::move(rule));
  }
  if (config.open_network) rules.push_back(Json::object());
  return {{"apiVersion", "networking.k8s.io/v1"},
          {"kind", "NetworkPolicy"},
          {"metadata", metadata_of(parts, parts.owner.sandbox_id)},
          {"spec",
           {{"podSelector",
             {{"matchLabels", {{label_of_pods(config.provision, kLabelSandbox), parts.owner.sandbox_id}}}}},
            {"policyTypes", {"Ingress", "Egress"}},
            {"ingress", Json::array()},
            {"egress", std::move(rules)}}}};
}

Json pod_of(const Config& config, const Parts& parts, const Limits& limits) {
  Json pod = {{"apiVersion", "v1"},
              {"kind", "Pod"},
              {"metadata", metadata_of(parts, parts.pod)},
              {"spec", spec_of(config, parts, limits)}};
  pod["metadata"]["labels"] = pod_labels_of(config.provision, parts.owner);
  overlay(pod, config.pod_template);
  return pod;
}

std::vector<Escape> escapes_of(const Json& own) {
  std::vector<Escape> all;
  const auto add = [&](const char* what, const auto& weaken) {
    all.push_back({what, own});
    weaken(all.back().pod["spec"]);
  };
  add("a privileged container", [](Json& spec) {
    Json& context = spec["containers"][0]["securityContext"];
    context["privileged"] = context["allowPrivilegeEscalation"] = true;
  });
  add("the node's root directory", [](Json& spec) {
    spec["volumes"].push_back({{"name", "node"}, {"hostPath", {{"path", "/"}}}});
    spec["containers"][0]["volumeMounts"].push_back({{"name", "node"}, {"mountPath", "/node"}});
  });
  add("the node's processes", [](Json& spec) { spec["hostPID"] = true; });
  add("the node's network", [](Json& spec) { spec["hostNetwork"] = true; });
  return all;
}

std::string profile_digest(const Config& config, const Parts& parts, const Limits& limits) {
  Parts anybody;
  anybody.owner.instance = parts.owner.instance;
  anybody.owner.backend = parts.owner.backend;
  anybody.shell = parts.shell;
  anybody.toolchain = parts.toolchain;
  anybody.shared = parts.shared;
  std::string text = pod_of(config, anybody, limits).dump() + policy_of(config, anybody).dump();
  if (config.vm) text += "vm";
  if (config.provision != Provision::kPod) text += name_of(config.provision) + config.sandbox_pool;
  return sha256_hex(text);
}

std::vector<std::string> attach_command() { return {kRunner, "attach"}; }

std::vector<std::string> stdio_command(const Parts& parts) { return runner_command("stdio", parts); }

// A claim's volume may be a separate file system, which the runner detects. An emptyDir is part of the
// node's: the kubelet ends the pod that outgrows it.
std::vector<std::string> disk_options(const Config& config, const Limits& limits) {
  if (config.provision == Provision::kSandboxClaim) return {};
  return {"--disk-limit", bytes_of_workspace(limits), "--disk-bound",
          config.workspace == Place::kClaim ? "volume" : "counted"};
}

}  // namespace isogate::k8s
