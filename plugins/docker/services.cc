#include "plugins/docker/services.h"

namespace isogate::docker {

std::unique_lock<std::timed_mutex> lock_for(std::timed_mutex& mutex, const sdk::Call& call) {
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_for(std::chrono::milliseconds(20))) call.check();
  return lock;
}

std::string name_of(RunnerTransport transport) {
  switch (transport) {
    case RunnerTransport::kSocket:
      return "socket";
    case RunnerTransport::kStream:
      return "stream";
    case RunnerTransport::kExec:
      return "exec";
    case RunnerTransport::kAuto:
      break;
  }
  return "not chosen yet";
}

std::string name_of(Place place) {
  if (place == Place::kBind) return "bind";
  return place == Place::kVolume ? "volume" : "not chosen yet";
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
