#include "plugins/docker/config.h"

#include "isogate/backend.hpp"
#include "lib/text.h"
#include "plugins/common/config_checks.h"
#include "plugins/common/strict_limits.h"
#include "plugins/docker/client/engine_sockets.h"
#include "plugins/docker/companions/companion_config.h"
#include "plugins/docker/files/exclude.h"

namespace isogate::docker {

NLOHMANN_JSON_SERIALIZE_ENUM(RunnerTransport, {{RunnerTransport::kAuto, "auto"},
                                               {RunnerTransport::kSocket, "socket"},
                                               {RunnerTransport::kStream, "stream"},
                                               {RunnerTransport::kExec, "exec"}})
NLOHMANN_JSON_SERIALIZE_ENUM(Place,
                             {{Place::kAuto, "auto"}, {Place::kBind, "bind"}, {Place::kVolume, "volume"}})
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Mount, source, target, read_only)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Copy, source, target, exclude, writable)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Config, host, image, platform, runtime, memory_mb, cpus, pids,
                                                tmp_mb, shm_mb, read_only, transport, workspace, runner,
                                                warm_pool, mounts, copies, copies_max_mb, copies_max_entries)

namespace {

using Json = nlohmann::json;

constexpr const char* kOwnPlaces[] = {"/workspace", "/run/isogate", "/proc", "/sys", "/dev", "/tmp"};

void check_source(const std::string& what, const std::string& source) {
  if (!is_normal(source))
    refuse("the " + what + " `" + source + "` is not an absolute path without `.`, `..` and empty parts");
  if (source.find("docker.sock") != std::string::npos || source.find("podman.sock") != std::string::npos ||
      source.find("containerd.sock") != std::string::npos)
    refuse("the " + what + " `" + source + "` is an engine's socket, and with it the whole machine");
}

// A copy excludes sockets; a mount shows everything below its source.
void check_mount(const std::string& host, const Mount& mount) {
  const std::string& source = mount.source;
  constexpr std::string_view kUnix = "unix://";
  std::string socket = usual_socket_in(source);
  if (host.starts_with(kUnix) && lies_in(host.substr(kUnix.size()), source))
    socket = host.substr(kUnix.size());
  if (!socket.empty())
    refuse("the mount source `" + source + "` is or holds an engine's socket, " + socket +
           ", and with it the whole machine");
  check_source("mount source", source);
  check_target("mount target", mount.target, kOwnPlaces);
}

void check_copy(const Copy& copy) {
  check_source("copy source", copy.source);
  check_target("copy target", copy.target, kOwnPlaces);
  for (const char* engines : {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"})
    if (copy.target == engines)
      refuse("the copy target `" + copy.target + "` is a file that the Engine writes itself");
  for (const std::string& pattern : copy.exclude)
    if (const std::string why = why_no_pattern(pattern); !why.empty())
      refuse("the exclude pattern `" + pattern + "` of " + copy.source + " " + why);
}

// No target may be at or below another one.
void check_places(const Config& config) {
  std::vector<std::string> targets;
  for (const Mount& each : config.mounts) {
    check_mount(config.host, each);
    targets.push_back(each.target);
  }
  for (const Copy& each : config.copies) {
    check_copy(each);
    targets.push_back(each.target);
  }
  check_apart(targets);
}

Config taken_from(const Json& json) {
  Config config = json;
  if (const auto tls = json.find("tls"); tls != json.end())
    config.tls = TlsFiles{tls->at("ca"), tls->at("certificate"), tls->at("key")};
  take_disk(json, config.disk);
  config.own_seccomp = json.value("seccomp_profile", "isogate") != "engine";
  const std::string network = json.value("network", "none");
  config.network = network != "none";
  config.internal = network == "internal";
  const Json env = json.value("env", Json::object());
  for (const auto& [key, value] : env.items()) config.env.emplace_back(key, value.get<std::string>());
  for (const Json& each : json.value("companions", Json::array()))
    config.companions.push_back(companion_of(each));
  return config;
}

}  // namespace

Config parse_config(std::string_view text) {
  Config config = config_from("docker", text, taken_from);
  check_limits("`docker`", config);
  if (config.host.starts_with("unix://") && config.tls)
    refuse("tls of `docker` is for tcp:// hosts, not for " + config.host);
  check_disk("`docker`", config.disk);
  if (config.disk.fs != WorkspaceFs::kDirectory) {
    if (config.workspace == Place::kVolume)
      refuse("workspace_fs of `docker` is for workspaces of this host: remove it, or workspace: volume");
    config.workspace = Place::kBind;  // never anything else, whatever the Engine answers
  }
  check_places(config);
  check_companions(config);
  return config;
}

void check_shared(const Config& config, const std::string& prefix) {
  const std::string place = "/mnt/" + prefix;
  const auto check = [&](const std::string& target) {
    if (meets(target, place))
      refuse("the target `" + target + "` meets " + place + ", where the shared directory `" + prefix +
             "` is");
  };
  for (const Mount& each : config.mounts) check(each.target);
  for (const Copy& each : config.copies) check(each.target);
}

std::vector<std::string> relaxations_of(const Config& config) {
  std::vector<std::string> found;
  add_limits(found, "a sandbox", "", kEngineMachine, config);
  add_disk(found, config.disk);
  if (!config.read_only) found.emplace_back("the root file system is writable");
  if (!config.own_seccomp) found.emplace_back("the seccomp profile is the Engine's own");
  if (config.network && !config.internal) found.emplace_back("each sandbox has a network with a way out");
  for (const Mount& each : config.mounts) {
    found.push_back("programs may " + std::string(each.read_only ? "read " : "write to ") + each.source +
                    " of the Engine's machine at " + each.target);
  }
  for (const Copy& each : config.copies)
    if (each.writable) found.push_back("what is copied to " + each.target + " may be changed by programs");
  for (const Companion& each : config.companions) add_relaxations(found, each);
  return found;
}

}  // namespace isogate::docker
