#include "plugins/docker/container/profile.h"

#include <sys/resource.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "lib/hash.h"
#include "plugins/docker/companions/companion_config.h"
#include "runner/enclosure/masked_paths.h"
#include "runner/exec/spawn/process_limits.h"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kMib = 1u << 20, kNanoseconds = 1'000'000'000;
constexpr const char* kScratch = "/dev/shm";

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

// An Engine creates no unnamed volume that is read-only: programs cannot write there because everything in it
// belongs to root.
Json copy_mount(const Owner& owner, const CopyPlace& place) {
  return {{"Type", "volume"},
          {"Target", place.target},
          {"ReadOnly", false},
          {"VolumeOptions", {{"NoCopy", !place.on_top}, {"Labels", labels_of(owner, "copy")}}}};
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
  if (parts.bind && !parts.passwd.empty()) mounts.push_back(bind_mount(parts.passwd, "/etc/passwd", true));
  if (parts.bind && !parts.group.empty()) mounts.push_back(bind_mount(parts.group, "/etc/group", true));
  if (!parts.gate.empty()) mounts.push_back(bind_mount(parts.gate, kGate, true));
  for (const auto& [prefix, path] : parts.shared) mounts.push_back(bind_mount(path, "/mnt/" + prefix, true));
  for (const Mount& each : config.mounts)
    mounts.push_back(bind_mount(each.source, each.target, each.read_only));
  for (const CopyPlace& each : parts.copies) mounts.push_back(copy_mount(parts.owner, each));
  return mounts;
}

Json with_surroundings(Json command, const Parts& parts, const Limits& limits) {
  for (const auto& [prefix, path] : parts.shared) {
    command.push_back("--shared");
    command.push_back(prefix + "=/mnt/" + prefix);
  }
  if (const uint64_t disk = limits.get(ISOGATE_LIMIT_DISK_BYTES); disk != 0)
    command.insert(command.end(), {"--disk-limit", std::to_string(disk), "--disk-bound",
                                   parts.disk_bound ? "kernel" : "counted"});
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

// podman takes no number of inodes.
std::string tmpfs_of(uint64_t mib, bool podman) {
  return "rw,nosuid,nodev,exec,mode=1777,size=" + std::to_string(mib) + "m" +
         (podman ? "" : ",nr_inodes=" + std::to_string(kInodesInMemory));
}

// This list replaces the Engine's own, and contains all of it; podman adds it to its own.
void mask(Json& host, bool podman) {
  std::vector<std::string> paths = {"/proc/kcore"};
  for (const MaskedPath& each : kMaskedInProc) paths.emplace_back(each.path);
  for (const MaskedPath& each : kMaskedInSys) paths.emplace_back(each.path);
  if (!podman) {
    host["MaskedPaths"] = paths;
    return;
  }
  std::string all = "mask=";
  for (const std::string& each : paths) all += (all.back() == '=' ? "" : ":") + each;
  host["SecurityOpt"].push_back(all);
}

// What all containers have in common.
Json hardened(const Config& config, const Parts& parts, const Limits& limits) {
  Json host = {
      {"NetworkMode", parts.network.empty() ? "none" : parts.network},
      {"CapDrop", {"ALL"}},
      {"SecurityOpt", Json::array({"no-new-privileges"})},
      {"Privileged", false},
      {"IpcMode", "private"},
      {"CgroupnsMode", "private"},
      {"Init", false},
      {"AutoRemove", false},
      {"RestartPolicy", {{"Name", "no"}}},
      {"ShmSize", config.shm_mb * kMib},
      {"Tmpfs", {{"/tmp", tmpfs_of(tmp_mb_beside(config.tmp_mb, limits), parts.podman)}}},
      {"Ulimits",
       {{{"Name", "nofile"}, {"Soft", kProgramSoftFiles}, {"Hard", kProgramFiles}},
        {{"Name", "core"}, {"Soft", 0}, {"Hard", 0}}}},
  };
  mask(host, parts.podman);
  if (!parts.seccomp.empty()) host["SecurityOpt"].push_back("seccomp=" + parts.seccomp);
  if (parts.processes != 0)
    host["Ulimits"].push_back({{"Name", "nproc"}, {"Soft", parts.processes}, {"Hard", parts.processes}});
  if (!parts.user_namespace.empty()) host["UsernsMode"] = parts.user_namespace;
  for (const auto& [name, value] : engine_limits(limits)) host[name] = value;
  if (!config.runtime.empty()) host["Runtime"] = config.runtime;
  // The Engine itself answers the names of the network. It would ask its machine's resolver for other names,
  // even from a network without a way out (CVE-2024-29018): here it asks the container.
  if (config.internal) {
    host["Dns"] = {"127.0.0.1"};
    host["DnsOptions"] = {"timeout:1", "attempts:1"};  // nothing answers there
  }
  return host;
}

// With a read-only root podman adds more places in memory, of no bounded size and as open as the image's own
// directories. A place that is requested by name it creates as requested. /run contains the runner's place.
void close_added_places(const Config& config, Json& tmpfs) {
  tmpfs["/run"] = "rw,nosuid,nodev,noexec,mode=0755";
  const bool taken = std::any_of(config.mounts.begin(), config.mounts.end(), [](const Mount& each) {
    return (each.target + "/").starts_with("/var/tmp/");
  });
  if (!taken) tmpfs["/var/tmp"] = "ro,nosuid,nodev,noexec";
}

Json host_config(const Config& config, const Parts& parts, const Limits& limits) {
  Json host = hardened(config, parts, limits);
  if (parts.podman && config.read_only) close_added_places(config, host["Tmpfs"]);
  host["Mounts"] = mounts_of(config, parts);
  host["ReadonlyRootfs"] = config.read_only;
  host["LogConfig"] = {{"Type", "none"}};
  return host;
}

Json healthcheck_of(const Companion& companion) {
  if (!companion.healthcheck) return {{"Test", {"NONE"}}};
  const Healthcheck& check = *companion.healthcheck;
  Json test = {"CMD"};
  for (const std::string& argument : check.test) test.push_back(argument);
  return {{"Test", std::move(test)},
          {"Interval", check.interval_sec * kNanoseconds},
          {"Timeout", check.timeout_sec * kNanoseconds},
          {"Retries", check.retries},
          {"StartPeriod", check.start_period_sec * kNanoseconds}};
}

// What is added to it and next to it after its creation.
Json additions_of(const Config& config) {
  Json copies = Json::array(), companions = Json::array();
  for (const Copy& each : config.copies)
    copies.push_back({each.source, each.target, each.exclude, each.writable});
  for (const Companion& each : config.companions) companions.push_back(json_of(each));
  return {{"platform", config.platform}, {"copies", copies}, {"companions", companions}};
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

Limits limits_of(const Config& config, const Limits& asked) {
  Limits limits = limits_from(config);
  limits.set(ISOGATE_LIMIT_DISK_BYTES, config.disk.disk_mb * kMib);
  return limits.overridden_by(asked);
}

std::map<std::string, uint64_t> engine_limits(const Limits& limits) {
  const uint64_t memory = limits.get(ISOGATE_LIMIT_MEMORY_BYTES);
  std::map<std::string, uint64_t> asked{{"Memory", memory},
                                        {"MemorySwap", memory},
                                        {"NanoCpus", limits.get(ISOGATE_LIMIT_CPU_MILLIS) * 1'000'000},
                                        {"PidsLimit", limits.get(ISOGATE_LIMIT_PIDS)}};
  std::erase_if(asked, [](const auto& each) { return each.second == 0; });
  return asked;
}

std::map<std::string, int64_t> engine_limits(const Json& inspected) {
  std::map<std::string, int64_t> found;
  const Json host = inspected.value("HostConfig", Json::object());
  for (const char* name : {"Memory", "MemorySwap", "NanoCpus", "PidsLimit"})
    if (const auto value = host.find(name); value != host.end() && value->is_number_integer())
      found[name] = value->get<int64_t>();
  return found;
}

std::string difference_of(const Limits& asked, const std::map<std::string, int64_t>& found, bool no_swap) {
  std::string all;
  for (const auto& [name, value] : engine_limits(asked)) {
    const auto its = found.find(name);
    const int64_t got = its == found.end() ? 0 : its->second;
    // Docker says -1 where it left that out, podman 0.
    if (got == static_cast<int64_t>(value) || (no_swap && name == "MemorySwap" && got <= 0)) continue;
    all += (all.empty() ? "" : ", ") + name + " is " + std::to_string(got) + " in place of " +
           std::to_string(value);
  }
  return all;
}

uint64_t processes_for(const Limits& limits) {
  rlimit own{};
  if (::getrlimit(RLIMIT_NPROC, &own) != 0) own.rlim_max = RLIM_INFINITY;
  return std::min<uint64_t>(std::max<uint64_t>(4096, limits.get(ISOGATE_LIMIT_PIDS)), own.rlim_max);
}

void fit_rootless(Parts& parts, bool podman) {
  if (podman) {
    parts.user_namespace = "keep-id";
  } else {
    parts.uid = parts.gid = 0;
  }
}

const std::string& image_of(const Config& config, const Parts& parts) {
  return parts.image.empty() ? config.image : parts.image;
}

Json container_of(const Config& config, const Parts& parts, const Limits& limits) {
  Json command = {kRunner, parts.gate.empty() ? "idle" : "dial"};
  if (!parts.gate.empty()) {
    command.push_back(std::string(kGate) + "/" + kSocketName);
    command.insert(command.end(), {"--scratch", kScratch});
  }
  Json labels = labels_of(parts.owner, "sandbox");
  labels["io.isogate.tenant"] = parts.tenant;
  labels["io.isogate.agent"] = parts.agent_id;
  Json body = {{"Image", image_of(config, parts)},
               {"Hostname", "sandbox"},
               {"User", std::to_string(parts.uid) + ":" + std::to_string(parts.gid)},
               {"WorkingDir", kWorkspace},
               {"Entrypoint", with_surroundings(std::move(command), parts, limits)},
               {"Cmd", Json::array()},
               {"Tty", false},
               {"OpenStdin", false},
               {"StopSignal", "SIGTERM"},
               {"Labels", std::move(labels)},
               {"HostConfig", host_config(config, parts, limits)}};
  if (!parts.podman) body["Healthcheck"] = {{"Test", {"NONE"}}};
  return body;
}

Json container_of(const Config& config, const Parts& parts, const Companion& companion) {
  const Limits limits = limits_from(companion);
  Json host = hardened(config, parts, limits);
  host["ReadonlyRootfs"] = companion.read_only;
  host["LogConfig"] = {{"Type", "json-file"}, {"Config", {{"max-size", "1m"}, {"max-file", "1"}}}};
  for (const std::string& path : companion.tmpfs)
    host["Tmpfs"][path] = tmpfs_of(tmp_mb_beside(config.tmp_mb, limits), parts.podman);
  Json env = Json::array();
  for (const auto& [key, value] : companion.env) env.push_back(key + "=" + value);
  Json labels = labels_of(parts.owner, "companion");
  labels["io.isogate.companion"] = companion.name;
  Json body = {
      {"Image", companion.image},
      {"Hostname", companion.name},
      {"User",
       companion.user.empty() ? std::to_string(parts.uid) + ":" + std::to_string(parts.gid) : companion.user},
      {"Env", std::move(env)},
      {"Tty", false},
      {"OpenStdin", false},
      {"Healthcheck", healthcheck_of(companion)},
      {"Labels", std::move(labels)},
      {"NetworkingConfig", {{"EndpointsConfig", {{parts.network, {{"Aliases", {companion.name}}}}}}}},
      {"HostConfig", std::move(host)}};
  if (!companion.command.empty()) body["Cmd"] = companion.command;
  return body;
}

std::string profile_digest(const Config& config, Parts parts, const Limits& limits) {
  // Without its id, which differs each time; the places of copies, and which names are missing, are known
  // only when they are created.
  parts.network = config.network ? (config.internal ? "internal" : "dedicated") : "";
  parts.copies.clear();
  parts.passwd.clear();
  parts.group.clear();
  return sha256_hex(container_of(config, parts, limits).dump() + additions_of(config).dump());
}

std::string shape_of(const Json& inspected) {
  Json shape = Json::object();
  for (const char* name :
       {"Image", "Path", "Args", "AppArmorProfile", "ProcessLabel", "MountLabel", "Config", "HostConfig"})
    shape[name] = inspected.value(name, Json());
  std::vector<std::string> mounts;  // in no order
  for (const Json& each : inspected.value("Mounts", Json::array())) mounts.push_back(each.dump());
  std::sort(mounts.begin(), mounts.end());
  shape["Mounts"] = mounts;
  const Json settings = inspected.value("NetworkSettings", Json::object());
  const Json networks = settings.value("Networks", Json::object());
  for (const auto& [name, network] : networks.items())
    shape["Networks"][name] = network.value("NetworkID", "");
  return sha256_hex(shape.dump());
}

Json stdio_command(const Parts& parts, const Limits& limits, bool alone) {
  Json command = {kRunner, "stdio"};
  if (alone) command.insert(command.end(), {"--scratch", kScratch});
  return with_surroundings(std::move(command), parts, limits);
}

}  // namespace isogate::docker
