#include "plugins/docker/config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"

namespace isogate::docker {
namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& why) { throw sdk::Error(ISOGATE_INVALID_ARGUMENT, why); }

// Absolute, normal, and nothing that the backend itself puts there.
void check_target(const std::string& target) {
  const bool absolute = target.size() > 1 && target.front() == '/' && target.back() != '/';
  if (!absolute || target.find("//") != std::string::npos ||
      (target + "/").find("/../") != std::string::npos || (target + "/").find("/./") != std::string::npos ||
      target.find('\0') != std::string::npos)
    refuse("the mount target `" + target + "` is not an absolute path without `.`, `..` and empty parts");
  for (const char* own : {"/workspace", "/run/isogate", "/proc", "/sys", "/dev", "/tmp"}) {
    const std::string place(own);
    if (target == place || target.starts_with(place + "/") || (place + "/").starts_with(target + "/"))
      refuse("the mount target `" + target + "` meets " + place + ", which this backend fills itself");
  }
}

void check_source(const std::string& source) {
  if (source.size() < 2 || source.front() != '/' || (source + "/").find("/../") != std::string::npos)
    refuse("the mount source `" + source + "` is not an absolute path without `..`");
  if (source.find("docker.sock") != std::string::npos || source.find("podman.sock") != std::string::npos ||
      source.find("containerd.sock") != std::string::npos)
    refuse("the mount source `" + source + "` is an engine's socket, and with it the whole machine");
}

void check_mounts(const std::vector<Mount>& mounts) {
  for (const Mount& each : mounts) {
    check_source(each.source);
    check_target(each.target);
    for (const Mount& other : mounts) {
      if (&other == &each) continue;
      if (other.target == each.target || other.target.starts_with(each.target + "/"))
        refuse("the mount targets `" + each.target + "` and `" + other.target + "` are in conflict");
    }
  }
}

RunnerTransport transport_of(const std::string& name) {
  if (name == "socket") return RunnerTransport::kSocket;
  if (name == "stream") return RunnerTransport::kStream;
  return name == "exec" ? RunnerTransport::kExec : RunnerTransport::kAuto;
}

Place place_of(const std::string& name) {
  if (name == "bind") return Place::kBind;
  return name == "volume" ? Place::kVolume : Place::kAuto;
}

Config taken_from(const Json& json) {
  Config config;
  const auto take = [&json](const char* key, auto& field) {
    if (const auto found = json.find(key); found != json.end()) found->get_to(field);
  };
  take("host", config.host);
  if (const auto tls = json.find("tls"); tls != json.end()) {
    config.ca = tls->value("ca", "");
    config.certificate = tls->value("certificate", "");
    config.key = tls->value("key", "");
  }
  take("image", config.image);
  take("runtime", config.runtime);
  take("memory_mb", config.memory_mb);
  take("cpus", config.cpus);
  take("pids", config.pids);
  take("tmp_mb", config.tmp_mb);
  take("shm_mb", config.shm_mb);
  take("read_only", config.read_only);
  config.network = json.value("network", "none") == "dedicated";
  config.transport = transport_of(json.value("transport", "auto"));
  config.workspace = place_of(json.value("workspace", "auto"));
  take("runner", config.runner);
  take("warm_pool", config.warm_pool);
  for (const auto& [key, value] : json.value("env", Json::object()).items())
    config.env.emplace_back(key, value.get<std::string>());
  for (const Json& each : json.value("mounts", Json::array()))
    config.mounts.push_back({each.at("source"), each.at("target"), each.value("read_only", true)});
  return config;
}

std::string number(double value) {
  std::string text = Json(value).dump();
  return text.ends_with(".0") ? text.substr(0, text.size() - 2) : text;
}

}  // namespace

Config parse_config(std::string_view text) {
  if (text.empty()) return {};
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) refuse("the configuration of `docker` is not a JSON object");
  Config config;
  try {
    config = taken_from(json);
  } catch (const Json::exception& error) {
    refuse(std::string("the configuration of `docker` does not fit its schema: ") + error.what());
  }
  if (config.memory_mb != 0 && config.memory_mb < 32)
    refuse("memory_mb of `docker` must be 0 or at least 32: the runner and a program have to fit");
  if (config.pids != 0 && config.pids < 32)
    refuse("pids of `docker` must be 0 or at least 32: the runner and a program have to fit");
  if (!(config.cpus == 0 || config.cpus >= 0.01)) refuse("cpus of `docker` must be 0 or at least 0.01");
  if (config.host.starts_with("unix://") && !config.ca.empty())
    refuse("tls of `docker` is for tcp:// hosts, not for " + config.host);
  check_mounts(config.mounts);
  return config;
}

std::vector<std::string> relaxations_of(const Config& config) {
  std::vector<std::string> found;
  if (config.memory_mb == 0) found.emplace_back("a sandbox may take all memory of the Engine's machine");
  if (config.cpus == 0) found.emplace_back("a sandbox may take all processors of the Engine's machine");
  if (config.pids == 0) found.emplace_back("a sandbox may start any number of processes");
  if (config.memory_mb > 512)
    found.push_back("memory_mb is " + std::to_string(config.memory_mb) + ", not 512");
  if (config.cpus > 1) found.push_back("cpus is " + number(config.cpus) + ", not 1");
  if (config.pids > 256) found.push_back("pids is " + std::to_string(config.pids) + ", not 256");
  if (!config.read_only) found.emplace_back("the root file system is writable");
  if (config.network) found.emplace_back("each sandbox has a network with a way out");
  for (const Mount& each : config.mounts) {
    found.push_back("programs may " + std::string(each.read_only ? "read " : "write to ") + each.source +
                    " of the Engine's machine at " + each.target);
  }
  if (config.host.starts_with("tcp://") && config.ca.empty())
    found.push_back("the Engine is spoken to over " + config.host + " without TLS");
  return found;
}

}  // namespace isogate::docker
