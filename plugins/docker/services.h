// The state that all sandboxes of one backend share. Made once, then read; the two choices are made at
// the first sandbox and kept.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "isogate/backend.hpp"
#include "plugins/common/wait_for.h"
#include "plugins/docker/background.h"
#include "plugins/docker/client/engine.h"
#include "plugins/docker/config.h"
#include "plugins/docker/files/user_names.h"
#include "plugins/docker/watch.h"

namespace isogate::docker {

// What decides how things are asked for.
struct EngineKind {
  bool podman = false, rootless = false;
};

struct Services {
  Services(sdk::Host host_, Config config_, EngineAddress address)
      : host(host_), config(std::move(config_)), engine(std::move(address)) {}
  Services(const Services&) = delete;
  Services& operator=(const Services&) = delete;
  ~Services() { watch.stop(); }  // it begins work in the background, which uses it

  sdk::Host host;
  const Config config;
  Engine engine;
  std::string runner;  // the program isogate-runner on this host
  Semaphore preparing;
  std::string runner_filled;  // the volume that has it; under `preparing`
  std::map<std::string, std::shared_ptr<const ImageUsers>>
      image_users;      // by the image's Id, under `preparing`
  Semaphore making{8};  // containers at once: an Engine with more requests stalls
  Semaphore creating;   // held for keep-id: podman 4.3 reads /etc/subuid in one thread or wrongly

  void warn(const std::string& line) const { host.log(ISOGATE_LOG_WARN, line); }
  void info(const std::string& line) const { host.log(ISOGATE_LOG_INFO, line); }

  // The file with seccomp_profile() for podman, which takes a profile only from a file; written at first
  // use. Throws sdk::Error.
  std::string seccomp_file();
  // Kills a container of ours, with as many attempts as necessary. True: the Engine confirms within
  // `patience` that nothing of it runs.
  bool kill(const std::string& id, const std::string& name, std::chrono::milliseconds patience);

  // How runners are reached; RunnerTransport::kAuto while that is not known. settle() keeps the answer
  // and why.
  [[nodiscard]] RunnerTransport transport() const { return transport_.load(); }
  [[nodiscard]] Place place() const { return place_.load(); }
  void settle(RunnerTransport transport, const std::string& why);
  void settle(Place place, const std::string& why);
  [[nodiscard]] std::string choices() const;  // one line for the probe
  // As the last probe found it; asked where there was none.
  EngineKind kind(const Budget& budget);
  void learn(const EngineInfo& info);
  // Whether the Engine is known to see the directories of this host.
  [[nodiscard]] bool sees_this_host() const;
  // Whether the Engine's machine seems to be this one, by its data root, and has no swap now.
  [[nodiscard]] bool has_no_swap() const;
  [[nodiscard]] bool limits_best_effort() const;  // as the operator wrote for this backend

 private:
  std::atomic<RunnerTransport> transport_{RunnerTransport::kAuto};
  std::atomic<Place> place_{Place::kAuto};
  mutable std::mutex mutex_;
  std::optional<EngineKind> kind_;
  bool seccomp_written_ = false;
  bool nearby_ = false;  // its data root is also a directory of this host
  std::string why_transport_, why_place_;

 public:
  Watch watch{*this};
  Background background{host};  // the last member: its work uses the others
};

// For the handler of that error. A refusal of the Engine is never the caller's mistake: other statuses than
// ISOGATE_CANCELLED and ISOGATE_UNAVAILABLE become the latter.
[[noreturn]] void rethrow_as_ours(const Services& services, const NetError& error);

}  // namespace isogate::docker
