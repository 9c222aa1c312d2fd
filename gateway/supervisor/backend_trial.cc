#include "gateway/base/log.h"
#include "gateway/config/plugin_place.h"
#include "gateway/supervisor/backend_slot.h"

namespace isogate::supervisor {

void BackendSlot::try_out(const Config& wanted, const BackendConfig& backend) {
  const bool serves = !removed_ && find(HostRole::kServing) != nullptr;
  const bool lives = serves || (!removed_ && find(HostRole::kStarting) != nullptr);
  trial_ = Trial{};
  trial_->fingerprint = host_fingerprint(wanted, backend);
  if (lives && !start_at_ && trial_->fingerprint == fingerprint_) return decide(Outcome::kUnchanged, "");
  ++generation_;
  if (auto there = check_plugin_there(wanted, backend); !there) {
    if (serves || there.error().status == ISOGATE_INVALID_ARGUMENT)
      trial_->mistake = Mistake{"plugin", there.error().message};
    return decide(Outcome::kAbsent, there.error().message);
  }
  auto process = launch(wanted, backend);
  if (!process) return decide(Outcome::kCrashed, process.error().message);
  (*process)->role = HostRole::kTrial;
  log::info("backend host started",
            {{"backend", name()}, {"generation", generation_}, {"host_pid", (*process)->child.pid}});
  processes_.push_back(std::move(*process));
}

void BackendSlot::decide(Outcome outcome, std::string reason) {
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
  restart_when_alone_ = false;
  policy_.forget();
  leave(HostRole::kStarting);
  HostProcess* process = find(HostRole::kTrial);
  if (process != nullptr) process->role = HostRole::kStarting;
  switch (trial.outcome) {
    case Outcome::kReady:
      return became_ready(*process);
    case Outcome::kAbsent:
      return not_installed({ISOGATE_NOT_FOUND, 0, trial.reason});
    case Outcome::kFailed:
      return give_up(generation_, trial.reason, false);
    default:
      return crashed(generation_, trial.reason);
  }
}

}  // namespace isogate::supervisor
