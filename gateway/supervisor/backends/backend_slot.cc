#include "gateway/supervisor/backends/backend_slot.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "gateway/config/load.h"
#include "gateway/config/plugin_place.h"
#include "gateway/ipc/channel.h"
#include "lib/clock.h"
#include "lib/log.h"

namespace isogate::supervisor {
namespace {

constexpr std::chrono::milliseconds kFrontReported{100};  // a process's end comes soon after its descriptors'

}  // namespace

BackendSlot::BackendSlot(Context& context, FrontProcess& front, BackendConfig config)
    : context_(context), front_(front), config_(std::move(config)), policy_(context.timings) {}

HostProcess* BackendSlot::find(HostRole role) {
  for (const auto& process : processes_)
    if (process->role == role) return process.get();
  return nullptr;
}

void BackendSlot::start() {
  const bool again = start_at_.has_value() || find(HostRole::kServing) != nullptr;
  start_at_.reset();
  restart_alone_from_.reset();
  fingerprint_ = host_fingerprint(context_.config, config_);
  ++generation_;
  if (auto there = check_plugin_there(context_.config, config_); !there && !again)
    return not_installed(there.error());
  if (auto launched = launch(context_.config, config_, HostRole::kStarting); !launched)
    crashed(generation_, launched.error().message);
}

// A configuration may name plugins that are not installed: no defect, as long as nothing has served yet.
void BackendSlot::not_installed(const Error& error) {
  if (!settled_ && error.status == ISOGATE_INVALID_ARGUMENT) mistake_ = Mistake{"plugin", error.message};
  settled_ = true;
  const auto& all = context_.config.backends;
  const auto own =
      std::find_if(all.begin(), all.end(), [this](const auto& each) { return each.name == name(); });
  std::string next;  // whatever its isolation
  if (own != all.end())
    for (auto each = own + 1; each != all.end(); ++each) next += (next.empty() ? "" : ", ") + each->name;
  log::write(next.empty() ? log::Level::kInfo : log::Level::kWarn, "backend_not_installed",
             {{"backend", name()}, {"reason", error.message}, {"next", next}});
  report_down({name(), generation_, error.message, false, false});
}

bool BackendSlot::serves() { return !removed_ && find(HostRole::kServing) != nullptr; }

Result<void> BackendSlot::launch(const Config& config, const BackendConfig& backend, HostRole role) {
  const std::string copy_dir_name = name() + "." + std::to_string(generation_);
  auto copy_dir = make_plugin_copy_dir(context_.state, copy_dir_name);
  if (!copy_dir) return copy_dir.error();
  auto pair = ipc::make_socket_pair();
  if (!pair) return pair.error();
  auto log = context_.log.new_writer();
  if (!log) return log.error();
  auto child = context_.start_host(name());
  if (!child) return child.error();
  auto process = std::make_unique<HostProcess>();
  process->control = ControlChannel(std::move(child->control));
  process->child = std::move(*child);
  process->generation = generation_;
  process->role = role;
  process->front_end = std::move(pair->own);
  process->settings = host_settings(config, backend);
  process->copy_dir_name = copy_dir_name;
  process->kill_later(context_.timings.ready,
                      "did not become ready within " + seconds_text(context_.timings.ready));
  std::vector<Fd> outputs;
  outputs.push_back(std::move(pair->theirs));
  outputs.push_back(std::move(*log));
  process->control.send(host_start_message({&config, &backend, generation_, context_.state.sandboxes,
                                            context_.state.uids, *copy_dir}),
                        {}, std::move(outputs));
  if (draining_) process->control.send(host_drain_message());
  log::info("backend_host_started",
            {{"backend", name()}, {"generation", generation_}, {"host_pid", process->child.pid}});
  processes_.push_back(std::move(process));
  return {};
}

void BackendSlot::remove() {
  removed_ = true;
  start_at_.reset();
  restart_alone_from_.reset();
  down_.reset();
  leave(HostRole::kStarting);
  leave(HostRole::kServing);
  drop_trial();
}

// Without a deadline: its calls may take long, and the front closes the socket after the last one. One that
// was given up, or has closed its control socket, keeps the deadline that it has.
void BackendSlot::leave(HostRole role) {
  HostProcess* process = find(role);
  if (process == nullptr) return;
  process->role = HostRole::kLeaving;
  if (!process->front_end) return;
  process->front_end.reset();  // no front ever had it: it ends now
  process->kill_at.reset();    // that of its start
  process->kill_later(context_.timings.leave, "did not end without a front");
}

void BackendSlot::front_lost() {
  for (const auto& process : processes_) {
    if (process->front_end) continue;
    if (process->role == HostRole::kServing) {
      process->role = HostRole::kLeaving;
      if (!removed_ && !retired_) restart_alone_from_ = Clock::now();
    }
    process->kill_later(context_.timings.leave, "did not end with its front");
  }
}

void BackendSlot::announce() {
  if (down_) report_down(*down_);
  if (HostProcess* process = find(HostRole::kServing); process != nullptr) hand_over(*process);
}

void BackendSlot::retire() {
  retired_ = true;
  start_at_.reset();
  restart_alone_from_.reset();
}

// One that leaves keeps running what the next one re-attaches.
void BackendSlot::drain() {
  draining_ = true;
  for (const auto& process : processes_)
    if (process->role != HostRole::kLeaving) process->control.send(host_drain_message());
}

void BackendSlot::stop(bool keep_sandboxes) {
  retire();
  stopping_ = true;
  for (const auto& process : processes_) {
    process->control.send(host_stop_message(keep_sandboxes));
    process->kill_later(context_.timings.stop, "did not stop within " + seconds_text(context_.timings.stop));
  }
}

void BackendSlot::kill_all() {
  for (const auto& process : processes_) process->kill_now("killed for an immediate stop");
  if (!processes_.empty()) context_.had_to_kill = true;
}

void BackendSlot::stuck(const FromChild& record) {
  for (const auto& process : processes_) {
    if (process->generation != record.generation) continue;
    process->given_up = record.reason;
    process->never_probed = !record.probed;
    process->kill_later(context_.timings.leave, "was given up by the front");
  }
}

void BackendSlot::attend(int fd) {
  for (const auto& process : processes_)
    if (process->control.fd() == fd) {
      process->control.flush();
      return receive(*process);
    }
}

void BackendSlot::receive(HostProcess& process) {
  for (int i = 0; i < ControlChannel::kRecordsPerTurn && process.control.fd() >= 0; ++i) {
    auto received = process.control.receive();
    if (!received && received.error().os_errno != ECONNRESET)
      return process.kill_now("broke the control protocol: " + received.error().message);
    if (!received)
      return process.kill_later(context_.timings.leave, "closed its control socket and did not end");
    if (!*received) return;
    if ((*received)->type == "ready" && !std::exchange(process.reported_ready, true)) {
      became_ready(process);
    } else if ((*received)->type == "failed") {
      process.failed = (*received)->message;
      process.setting = (*received)->setting;
      process.kill_later(context_.timings.leave, "did not end after it failed: " + *process.failed);
    } else {
      return process.kill_now("sent `" + (*received)->type + "` out of turn");
    }
  }
}

void BackendSlot::became_ready(HostProcess& process) {
  if (process.role == HostRole::kTrial && trial_) {
    process.kill_at.reset();
    return decide(Outcome::kReady, "");
  }
  if (process.role != HostRole::kStarting || stopping_) return;
  settled_ = true;
  leave(HostRole::kServing);
  process.role = HostRole::kServing;
  process.kill_at.reset();
  down_.reset();
  log::info("backend_up", {{"backend", name()}, {"generation", process.generation}});
  hand_over(process);
}

void BackendSlot::hand_over(HostProcess& process) {
  if (!process.front_end || !front_.running()) return;
  if (process.settings != settings_) {
    settings_ = process.settings;
    settings_since_ = process.generation;
  }
  std::vector<Fd> fds;
  fds.push_back(std::move(process.front_end));
  front_.send(backend_up_message(name(), process.generation, settings_since_), std::move(fds));
}

void BackendSlot::report_down(BackendDown down) {
  down_ = std::move(down);
  if (front_.running()) front_.send(backend_down_message(*down_), {});
}

bool BackendSlot::ended(pid_t pid, int wait_status) {
  const auto found = std::find_if(processes_.begin(), processes_.end(),
                                  [pid](const auto& process) { return process->child.pid == pid; });
  if (found == processes_.end()) return false;
  receive(**found);  // its last records
  const std::unique_ptr<HostProcess> process = std::move(*found);
  processes_.erase(found);
  remove_plugin_copy_dir(context_.state, process->copy_dir_name);
  conclude(*process, wait_status);
  restart_when_alone();
  return true;
}

void BackendSlot::conclude(const HostProcess& process, int wait_status) {
  const std::string reason = reason_of_end(process, wait_status);
  if (stopping_ || process.role == HostRole::kLeaving) {
    if (ended_with(wait_status, 0)) return;
    if (stopping_) context_.had_to_kill = true;
    log::warn("backend_host_exit_unclean",
              {{"backend", name()}, {"generation", process.generation}, {"reason", reason}});
    if (stopping_ && process.role == HostRole::kServing)
      report_down({name(), process.generation, reason, false, false});
    return;
  }
  if (process.role == HostRole::kTrial) return conclude_trial(process, wait_status, reason);
  const bool failed = process.failed && ended_with(wait_status, kPermanent);
  if (failed && process.setting && !settled_) mistake_ = Mistake{*process.setting, *process.failed};
  settled_ = true;
  if (failed) return give_up(process.generation, *process.failed, false);
  if (process.role == HostRole::kServing && ended_with(wait_status, 0) && front_.dying()) {
    // The front ended first; its end is about to be reported, which in a stop ends this.
    if (!removed_ && !retired_) restart_alone_from_ = Clock::now() + kFrontReported;
    return;
  }
  crashed(process.generation, reason, process.never_probed);
}

void BackendSlot::crashed(uint64_t generation, const std::string& reason, bool never_probed) {
  settled_ = true;
  if (retired_) {
    log::warn("backend_down", {{"backend", name()}, {"generation", generation}, {"reason", reason}});
    return report_down({name(), generation, reason, false, false});
  }
  const auto delay = policy_.crashed(Clock::now(), never_probed);
  if (!delay) return give_up(generation, reason, true);
  start_at_ = Clock::now() + *delay;
  log::warn("backend_down", {{"backend", name()},
                             {"generation", generation},
                             {"reason", reason},
                             {"restart_in_ms", delay->count()}});
  if (find(HostRole::kServing) == nullptr) report_down({name(), generation, reason, false, true});
}

void BackendSlot::give_up(uint64_t generation, const std::string& reason, bool quarantined) {
  log::error(quarantined ? "backend_quarantined" : "backend_failed",
             {{"backend", name()},
              {"generation", generation},
              {"reason", reason},
              {"until", "reload (SIGHUP) or restart"}});
  leave(HostRole::kServing);
  report_down({name(), generation, reason, quarantined, false});
}

void BackendSlot::restart_when_alone() {
  if (restart_alone_from_ && *restart_alone_from_ <= Clock::now() && processes_.empty()) start();
}

void BackendSlot::tick(TimePoint now) {
  if (start_at_ && *start_at_ <= now) start();
  restart_when_alone();
  for (const auto& process : processes_) {
    if (!process->kill_at || *process->kill_at > now) continue;
    if (stopping_) context_.had_to_kill = true;
    log::warn("backend_host_killed",
              {{"backend", name()}, {"generation", process->generation}, {"reason", process->kill_reason}});
    process->kill_now(process->kill_reason);
  }
}

TimePoint BackendSlot::next_deadline() const {
  TimePoint next = start_at_.value_or(TimePoint::max());
  if (processes_.empty()) next = std::min(next, restart_alone_from_.value_or(TimePoint::max()));
  for (const auto& process : processes_) next = std::min(next, process->kill_at.value_or(TimePoint::max()));
  return next;
}

std::string host_settings(const Config& config, const BackendConfig& backend) {
  Config part;
  part.state_dir = config.state_dir;
  part.instance = config.instance;
  part.plugin_dir = config.plugin_dir;
  part.shell = config.shell;
  part.workdir = config.workdir;
  part.toolchain_path = config.toolchain_path;
  part.shared_dirs = config.shared_dirs;
  part.backends = {backend};
  std::string text = config_to_json(part);

  struct stat info {};
  if (::stat(plugin_file(config, backend).c_str(), &info) == 0)
    text += std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino) + ":" +
            std::to_string(info.st_size) + ":" + std::to_string(info.st_mtim.tv_sec) + "." +
            std::to_string(info.st_mtim.tv_nsec) + ":" + std::to_string(info.st_ctim.tv_sec) + "." +
            std::to_string(info.st_ctim.tv_nsec);
  return text;
}

std::string host_fingerprint(const Config& config, const BackendConfig& backend) {
  return host_settings(config, backend) + config.log.level + (has_many_tenants(config) ? "+" : "") +
         (config.allow_unisolated ? "u" : "") + " " + std::to_string(config.limits.max_execs) + " " +
         std::to_string(config.limits.max_sandboxes);
}

void BackendSlot::try_out(const Config& wanted, const BackendConfig& backend) {
  const bool lives = serves() || (!removed_ && find(HostRole::kStarting) != nullptr);
  trial_ = Trial{};
  trial_->fingerprint = host_fingerprint(wanted, backend);
  if (lives && !start_at_ && trial_->fingerprint == fingerprint_) return decide(Outcome::kUnchanged, "");
  ++generation_;
  if (auto there = check_plugin_there(wanted, backend); !there) {
    if (serves() || there.error().status == ISOGATE_INVALID_ARGUMENT)
      trial_->mistake = Mistake{"plugin", there.error().message};
    return decide(Outcome::kAbsent, there.error().message);
  }
  if (auto launched = launch(wanted, backend, HostRole::kTrial); !launched)
    decide(Outcome::kCrashed, launched.error().message);
}

void BackendSlot::decide(Outcome outcome, std::string reason) {
  if (outcome == Outcome::kCrashed && serves()) trial_->mistake = Mistake{"", reason};
  trial_->outcome = outcome;
  trial_->reason = std::move(reason);
}

void BackendSlot::conclude_trial(const HostProcess& process, int wait_status, const std::string& reason) {
  if (!trial_) return;
  if (!process.failed || !ended_with(wait_status, kPermanent)) return decide(Outcome::kCrashed, reason);
  if (process.setting) trial_->mistake = Mistake{*process.setting, *process.failed};
  decide(Outcome::kFailed, *process.failed);
}

void BackendSlot::drop_trial() {
  leave(HostRole::kTrial);
  trial_.reset();
}

void BackendSlot::take_over(BackendConfig config) {
  config_ = std::move(config);
  removed_ = false;
  settled_ = true;
  const Trial trial = std::move(*trial_);
  trial_.reset();
  if (trial.outcome == Outcome::kUnchanged) return;
  fingerprint_ = trial.fingerprint;
  start_at_.reset();
  restart_alone_from_.reset();
  policy_.forget();
  leave(HostRole::kStarting);
  HostProcess* process = find(HostRole::kTrial);
  if (process != nullptr) process->role = HostRole::kStarting;
  switch (trial.outcome) {
    case Outcome::kReady:
      if (!front_.running() && processes_.size() > 1) return start_later();
      return became_ready(*process);
    case Outcome::kAbsent:
      return not_installed({ISOGATE_NOT_FOUND, 0, trial.reason});
    case Outcome::kFailed:
      return give_up(generation_, trial.reason, false);
    default:  // once the front had adopted the configuration: the old host must not go on
      leave(HostRole::kServing);
      return crashed(generation_, trial.reason);
  }
}

// The hosts of the last front are still ending, and the next front would open their sandboxes in the host
// that was on trial: one with the new settings starts once they have ended.
void BackendSlot::start_later() {
  leave(HostRole::kStarting);
  leave(HostRole::kServing);
  down_.reset();
  restart_alone_from_ = Clock::now();
}

}  // namespace isogate::supervisor
