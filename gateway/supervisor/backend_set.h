// All configured backends: one slot each, and the reload that compares them.
#pragma once

#include <memory>
#include <vector>

#include "gateway/supervisor/backend_slot.h"

namespace isogate::supervisor {

class BackendSet {
 public:
  BackendSet(Context& context, const FrontLink& front) : context_(context), front_(front) {}

  void start(const BackendConfig& backend);

  // A reload: tries a host for each backend that has changed or is down; when they are settled, keeps,
  // replaces, starts and removes so that what runs is what `wanted` says, or leaves everything as it was.
  void try_out(const Config& wanted);
  void take_over(const std::vector<BackendConfig>& wanted);
  void drop_trials();

  // Every first host, or every one on trial, has come to something.
  [[nodiscard]] bool settled() const;
  // The first in the order of `backends` whose configuration is wrong, and the path of what to mend.
  [[nodiscard]] std::optional<Mistake> mistake(const std::vector<BackendConfig>& backends) const;

  // To every slot; what they mean stands at BackendSlot.
  void announce();
  void front_lost();
  void retire();
  void stop(bool keep_sandboxes);
  void kill_all();
  void stuck(const std::string& backend, uint64_t generation);
  void attend(int fd);
  void ended(pid_t pid, int wait_status);
  void tick(TimePoint now);

  [[nodiscard]] TimePoint next_deadline() const;
  [[nodiscard]] bool hosts_gone() const;
  [[nodiscard]] std::vector<const ControlChannel*> controls() const;

 private:
  [[nodiscard]] BackendSlot* find(const std::string& name) const;

  Context& context_;
  const FrontLink& front_;
  std::vector<std::unique_ptr<BackendSlot>> slots_;
};

}  // namespace isogate::supervisor
