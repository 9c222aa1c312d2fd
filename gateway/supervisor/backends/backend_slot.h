// One configured backend over time: its serving backend host, the host that replaces it, hosts that are still
// ending, and how the last one ended.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gateway/supervisor/backends/host_process.h"
#include "gateway/supervisor/context.h"
#include "gateway/supervisor/front_process.h"

namespace isogate::supervisor {

// A backend whose configuration is wrong, as opposed to one that this host cannot run now.
struct Mistake {
  std::string setting;  // of it, "config"; empty: the backend itself
  std::string reason;
};

class BackendSlot {
 public:
  BackendSlot(Context& context, FrontProcess& front, BackendConfig config);

  void start();   // starts a backend host
  void remove();  // ends it; no other starts until a reload

  // A reload has two steps, so that a mistake changes nothing. First a backend host with the new settings
  // starts beside the serving one, unless nothing has changed and that one is up. Then, once all are settled,
  // all of them take over or all are dropped.
  void try_out(const Config& wanted, const BackendConfig& backend);
  void take_over(BackendConfig config);  // context.config is the new configuration
  void drop_trial();
  [[nodiscard]] bool on_trial() const { return trial_.has_value(); }

  // Whether the first backend host, or the one on trial, is ready or has failed; and the mistake in its
  // settings.
  [[nodiscard]] bool settled() const { return trial_ ? trial_->outcome != Outcome::kOpen : settled_; }
  [[nodiscard]] const std::optional<Mistake>& mistake() const { return trial_ ? trial_->mistake : mistake_; }
  void front_lost();               // hosts end with their front, and are started again
  void announce();                 // reports all backends to a new front
  void retire();                   // hosts keep running, but no new one is started
  void drain();                    // hosts close what they have, should their front end now
  void stop(bool keep_sandboxes);  // every host, for good
  void kill_all();

  // The front has abandoned that host: it ends, or is killed.
  void stuck(const FromChild& record);

  void attend(int fd);                     // its control socket is ready
  bool ended(pid_t pid, int wait_status);  // false: not one of ours
  void tick(TimePoint now);
  [[nodiscard]] TimePoint next_deadline() const;

  [[nodiscard]] const std::vector<std::unique_ptr<HostProcess>>& processes() const { return processes_; }
  [[nodiscard]] bool empty() const { return processes_.empty(); }
  [[nodiscard]] const std::string& name() const { return config_.name; }
  [[nodiscard]] bool removed() const { return removed_; }

 private:
  enum class Outcome { kOpen, kUnchanged, kReady, kAbsent, kFailed, kCrashed };
  struct Trial {
    std::string fingerprint;
    Outcome outcome = Outcome::kOpen;
    std::string reason;              // absent, failed, crashed
    std::optional<Mistake> mistake;  // also of one that crashed or hung, where another one serves
  };

  HostProcess* find(HostRole role);
  bool serves();
  Result<void> launch(const Config& config, const BackendConfig& backend, HostRole role);
  void conclude_trial(const HostProcess& process, int wait_status, const std::string& reason);
  void decide(Outcome outcome, std::string reason);
  void receive(HostProcess& process);
  void became_ready(HostProcess& process);
  void hand_over(HostProcess& process);
  void leave(HostRole role);
  void conclude(const HostProcess& process, int wait_status);
  void not_installed(const Error& error);
  void give_up(uint64_t generation, const std::string& reason, bool quarantined);
  void crashed(uint64_t generation, const std::string& reason, bool never_probed = false);
  void start_later();
  void restart_when_alone();
  void report_down(BackendDown down);

  Context& context_;
  FrontProcess& front_;
  BackendConfig config_;
  std::string fingerprint_;
  std::string settings_;         // of the host that the front was given last
  uint64_t settings_since_ = 0;  // and the first generation that had these
  RestartPolicy policy_;
  std::vector<std::unique_ptr<HostProcess>> processes_;
  std::optional<TimePoint> start_at_;
  std::optional<BackendDown> down_;  // last report to the front; nullopt: up, or never up yet
  std::optional<Trial> trial_;
  std::optional<Mistake> mistake_;  // of the first host
  bool settled_ = false;
  uint64_t generation_ = 0;
  std::optional<TimePoint> restart_alone_from_;  // once the hosts of the last front have left, too
  bool removed_ = false, retired_ = false, draining_ = false, stopping_ = false;
};

// Differs when a host must be replaced: by any setting that it reads, or the plugin's file.
std::string host_fingerprint(const Config& config, const BackendConfig& backend);
// The file of its plugin, and what a sandbox depends on: while these are the same, the previous backend host
// serves a sandbox whose calls run. Without the log's level, how much a backend host accepts, and the policy.
std::string host_settings(const Config& config, const BackendConfig& backend);

}  // namespace isogate::supervisor
