#include "plugins/docker/profile.h"

#include <openssl/evp.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMib = 1u << 20;

Json bind_mount(const std::string& source, const std::string& target, bool read_only) {
  return {{"Type", "bind"},
          {"Source", source},
          {"Target", target},
          {"ReadOnly", read_only},
          {"BindOptions", {{"Propagation", "rprivate"}}}};
}

Json volume_mount(const std::string& name, const std::string& target, bool read_only) {
  return {{"Type", "volume"},
          {"Source", name},
          {"Target", target},
          {"ReadOnly", read_only},
          {"VolumeOptions", {{"NoCopy", true}}}};
}

Json mounts_of(const Config& config, const Parts& parts) {
  Json mounts = Json::array();
  if (parts.bind) {
    mounts.push_back(bind_mount(parts.workspace, kWorkspace, false));
    mounts.push_back(bind_mount(parts.runner, kRunner, true));
  } else {
    mounts.push_back(volume_mount(parts.workspace, kWorkspace, false));
    mounts.push_back(volume_mount(parts.runner, kRunnerDirectory, true));
  }
  if (!parts.gate.empty()) mounts.push_back(bind_mount(parts.gate, kGate, true));
  for (const auto& [prefix, path] : parts.shared) mounts.push_back(bind_mount(path, "/mnt/" + prefix, true));
  for (const Mount& each : config.mounts)
    mounts.push_back(bind_mount(each.source, each.target, each.read_only));
  return mounts;
}

Json with_surroundings(Json command, const Parts& parts) {
  for (const auto& [prefix, path] : parts.shared) {
    command.push_back("--shared");
    command.push_back(prefix + "=/mnt/" + prefix);
  }
  if (!parts.shell.empty()) {
    command.push_back("--shell");
    command.push_back(parts.shell);
  }
  if (!parts.toolchain.empty()) {
    command.push_back("--toolchain");
    command.push_back(parts.toolchain);
  }
  return command;
}

Json host_config(const Config& config, const Parts& parts, const isogate_limits& limits) {
  Json host = {
      {"Mounts", mounts_of(config, parts)},
      {"NetworkMode", parts.network.empty() ? "none" : parts.network},
      {"ReadonlyRootfs", config.read_only},
      {"CapDrop", {"ALL"}},
      {"SecurityOpt", {"no-new-privileges"}},
      {"Privileged", false},
      {"IpcMode", "private"},
      {"CgroupnsMode", "private"},
      {"Init", false},
      {"AutoRemove", false},
      {"RestartPolicy", {{"Name", "no"}}},
      {"LogConfig", {{"Type", "none"}}},
      {"ShmSize", config.shm_mb * kMib},
      {"Tmpfs", {{"/tmp", "rw,nosuid,nodev,exec,mode=1777,size=" + std::to_string(config.tmp_mb) + "m"}}},
      {"Ulimits",
       {{{"Name", "nofile"}, {"Soft", 1024}, {"Hard", 16384}}, {{"Name", "core"}, {"Soft", 0}, {"Hard", 0}}}},
  };
  if (parts.processes != 0)
    host["Ulimits"].push_back({{"Name", "nproc"}, {"Soft", parts.processes}, {"Hard", parts.processes}});
  if (!parts.user_namespace.empty()) host["UsernsMode"] = parts.user_namespace;
  if (limits.memory_bytes != 0) {
    host["Memory"] = limits.memory_bytes;
    host["MemorySwap"] = limits.memory_bytes;
  }
  if (limits.cpu_millis != 0) host["NanoCpus"] = limits.cpu_millis * 1000000;
  if (limits.pids != 0) host["PidsLimit"] = limits.pids;
  if (!config.runtime.empty()) host["Runtime"] = config.runtime;
  return host;
}

}  // namespace

Json labels_of(const Owner& owner, const std::string& role) {
  return {{kLabelInstance, owner.instance},
          {kLabelBackend, owner.backend},
          {kLabelSandbox, owner.sandbox_id},
          {kLabelRole, role}};
}

bool carries(const Json& labels, const Owner& owner) {
  const auto is = [&labels](const char* key, const std::string& value) {
    const auto found = labels.find(key);
    return found != labels.end() && *found == value;
  };
  return labels.is_object() && is(kLabelInstance, owner.instance) && is(kLabelBackend, owner.backend) &&
         is(kLabelSandbox, owner.sandbox_id);
}

isogate_limits limits_of(const Config& config, const isogate_limits& asked) {
  isogate_limits limits{};
  limits.memory_bytes = asked.memory_bytes != 0 ? asked.memory_bytes : config.memory_mb * kMib;
  limits.cpu_millis =
      asked.cpu_millis != 0 ? asked.cpu_millis : static_cast<uint64_t>(config.cpus * 1000 + 0.5);
  limits.pids = asked.pids != 0 ? asked.pids : config.pids;
  return limits;
}

uint64_t processes_for(const isogate_limits& limits) {
  rlimit own{};
  if (::getrlimit(RLIMIT_NPROC, &own) != 0) own.rlim_max = RLIM_INFINITY;
  return std::min<uint64_t>(std::max<uint64_t>(4096, limits.pids), own.rlim_max);
}

void fit_rootless(Parts& parts, bool podman) {
  if (podman) {
    parts.user_namespace = "keep-id";
  } else {
    parts.uid = parts.gid = 0;
  }
}

Json container_of(const Config& config, const Parts& parts, const isogate_limits& limits) {
  Json command = {kRunner, parts.gate.empty() ? "idle" : "dial"};
  if (!parts.gate.empty()) command.push_back(std::string(kGate) + "/" + kSocketName);
  Json labels = labels_of(parts.owner, "sandbox");
  labels["io.isogate.tenant"] = parts.tenant;
  labels["io.isogate.agent"] = parts.agent_id;
  Json body = {{"Image", config.image},
               {"Hostname", "sandbox"},
               {"User", std::to_string(parts.uid) + ":" + std::to_string(parts.gid)},
               {"WorkingDir", kWorkspace},
               {"Entrypoint", with_surroundings(std::move(command), parts)},
               {"Cmd", Json::array()},
               {"Tty", false},
               {"OpenStdin", false},
               {"StopSignal", "SIGTERM"},
               {"Labels", std::move(labels)},
               {"HostConfig", host_config(config, parts, limits)}};
  if (!parts.podman) body["Healthcheck"] = {{"Test", {"NONE"}}};
  return body;
}

std::string profile_digest(const Config& config, Parts parts, const isogate_limits& limits) {
  parts.network = config.network ? "dedicated" : "";  // not its id, which is another each time
  const std::string text = container_of(config, parts, limits).dump();
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), digest.data(), &size, EVP_sha256(), nullptr) != 1)
    throw sdk::Error(ISOGATE_INTERNAL, "cannot make the digest of a container's profile");
  std::string hex;
  for (unsigned i = 0; i < size; ++i) {
    hex += "0123456789abcdef"[digest[i] >> 4];
    hex += "0123456789abcdef"[digest[i] & 15];
  }
  return hex;
}

Json stdio_command(const Parts& parts) { return with_surroundings({kRunner, "stdio"}, parts); }

}  // namespace isogate::docker
