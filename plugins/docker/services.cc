#include "plugins/docker/services.h"

#include <sys/stat.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <thread>

#include "plugins/common/or_throw.h"
#include "plugins/docker/container/seccomp.h"
#include "runner/cgroup/cgroup_limits.h"
#include "runner/files/workspace_state.h"

namespace isogate::docker {
namespace {

bool is_here(const std::string& directory) {
  struct stat info {};
  if (directory.empty()) return false;
  return ::stat(directory.c_str(), &info) == 0 ? S_ISDIR(info.st_mode) : errno == EACCES;
}

constexpr std::chrono::milliseconds kDying{10};
constexpr const char* kNotChosen = "not chosen yet";

// In the order of their values.
constexpr const char *kTransports[] = {kNotChosen, "socket", "stream", "exec"},
                     *kPlaces[] = {kNotChosen, "bind", "volume"};

std::string name_of(RunnerTransport transport) { return kTransports[static_cast<size_t>(transport)]; }
std::string name_of(Place place) { return kPlaces[static_cast<size_t>(place)]; }

bool runs(Engine& engine, const std::string& id, const Budget& budget) {
  const auto seen = engine.find(id, budget);
  return seen && seen->at("State").at("Running") != false;
}

}  // namespace

void rethrow_as_ours(const Services& services, const NetError& error) {
  if (error.status() == ISOGATE_CANCELLED || error.status() == ISOGATE_UNAVAILABLE) throw;
  services.warn(error.what());
  throw sdk::Error(ISOGATE_UNAVAILABLE, error.what());
}

std::string Services::seccomp_file() {
  const std::string name = "seccomp." + std::string(sdk::view(host.abi().backend_name));
  const std::string directory(sdk::view(host.abi().sandboxes_dir));
  const std::lock_guard lock(mutex_);
  if (!seccomp_written_) {
    const Fd parent = or_throw(open_state_directory(directory));
    or_throw(replace_state_file(parent.get(), name.c_str(), seccomp_profile()));
    seccomp_written_ = true;
  }
  return directory + "/" + name;
}

bool Services::kill(const std::string& id, const std::string& name, std::chrono::milliseconds patience) {
  const std::string key = "kill " + id;
  const auto work = [this, id](const sdk::Call& call) {
    try {
      engine.kill(id, "KILL", call);
    } catch (const NetError& error) {
      if (error.status() == ISOGATE_NOT_FOUND) return;
      if (error.http_status() == 0) throw;
      if (runs(engine, id, call)) throw;
    }
    // Sending the signal is not the end: everything in its namespace must end first.
    for (; runs(engine, id, call); std::this_thread::sleep_for(kDying)) call.check();
  };
  return background.begin(key, "the container " + name + " is killed", work) &&
         background.is_done(key, patience);
}

void Services::settle(RunnerTransport transport, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (transport_ == transport) return;
  transport_ = transport;
  why_transport_ = why;
  info("runners are reached by " + name_of(transport) + ": " + why);
}

void Services::settle(Place place, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (place_ == place) return;
  place_ = place;
  why_place_ = why;
  info("workspaces are by " + name_of(place) + ": " + why);
}

EngineKind Services::kind(const Budget& budget) {
  {
    const std::lock_guard lock(mutex_);
    if (kind_) return *kind_;
  }
  const EngineInfo found = engine.info(budget);
  learn(found);
  return {found.podman, found.rootless};
}

void Services::learn(const EngineInfo& info) {
  const std::lock_guard lock(mutex_);
  kind_ = EngineKind{info.podman, info.rootless};
  nearby_ = !engine.address().unix_path.empty() && is_here(info.data_root);
}

bool Services::sees_this_host() const {
  if (config.workspace != Place::kAuto) return config.workspace == Place::kBind;
  if (place() != Place::kAuto) return place() == Place::kBind;
  const std::lock_guard lock(mutex_);
  return nearby_;
}

bool Services::has_no_swap() const {
  const std::lock_guard lock(mutex_);
  return nearby_ && swap_is_off();
}

bool Services::limits_best_effort() const {
  return (host.abi().flags & ISOGATE_HOST_LIMITS_BEST_EFFORT) != 0;
}

std::string Services::choices() const {
  const std::lock_guard lock(mutex_);
  const auto line = [](const std::string& name, const std::string& why) {
    return why.empty() ? name : name + " (" + why + ")";
  };
  return "transport " + line(name_of(transport_), why_transport_) + ", workspace " +
         line(name_of(place_), why_place_);
}

}  // namespace isogate::docker
