// All configured backends: one slot each, and the reload that compares them.
#pragma once

#include <memory>
#include <vector>

#include "gateway/supervisor/backends/backend_slot.h"

namespace isogate::supervisor {

class BackendSet {
 public:
  BackendSet(Context& context, FrontProcess& front) : context_(context), front_(front) {}

  void start(const BackendConfig& backend);

  // A reload: starts a trial host for each backend that has changed or is down. When they are settled,
  // keeps, replaces, starts and removes backends to match `wanted`; each(drop_trial) leaves everything
  // unchanged.
  void try_out(const Config& wanted);
  void take_over(const std::vector<BackendConfig>& wanted);

  // Every first host, or every one on trial, is ready or has failed.
  [[nodiscard]] bool settled() const;
  // The first in the order of `backends` whose configuration is wrong, and the path of the setting
  // to correct.
  [[nodiscard]] std::optional<Mistake> mistake(const std::vector<BackendConfig>& backends) const;

  // One step of every slot.
  template <typename... Arguments>
  void each(void (BackendSlot::*step)(Arguments...), Arguments... arguments) {
    for (const auto& slot : slots_) (slot.get()->*step)(arguments...);
  }

  // To the slot that it concerns, or every one; see BackendSlot.
  void stuck(const FromChild& record);
  void ended(pid_t pid, int wait_status);
  void tick(TimePoint now);

  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool hosts_gone() const;
  [[nodiscard]] std::vector<const ControlChannel*> controls() const;

 private:
  [[nodiscard]] BackendSlot* find(const std::string& name) const;

  Context& context_;
  FrontProcess& front_;
  std::vector<std::unique_ptr<BackendSlot>> slots_;
};

}  // namespace isogate::supervisor
