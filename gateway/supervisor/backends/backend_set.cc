#include "gateway/supervisor/backends/backend_set.h"

#include <algorithm>

namespace isogate::supervisor {

void BackendSet::start(const BackendConfig& backend) {
  slots_.push_back(std::make_unique<BackendSlot>(context_, front_, backend));
  slots_.back()->start();
}

BackendSlot* BackendSet::find(const std::string& name) const {
  for (const auto& slot : slots_)
    if (slot->name() == name) return slot.get();
  return nullptr;
}

void BackendSet::try_out(const Config& wanted) {
  for (const BackendConfig& backend : wanted.backends) {
    if (find(backend.name) == nullptr) {
      slots_.push_back(std::make_unique<BackendSlot>(context_, front_, backend));
      slots_.back()->remove();  // it only becomes one when it takes over
    }
    find(backend.name)->try_out(wanted, backend);
  }
}

void BackendSet::take_over(const std::vector<BackendConfig>& wanted) {
  for (const auto& slot : slots_)
    if (!slot->on_trial()) slot->remove();
  for (const BackendConfig& backend : wanted) find(backend.name)->take_over(backend);
}

bool BackendSet::settled() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) {
    return slot->settled() || (slot->removed() && !slot->on_trial());
  });
}

std::optional<Mistake> BackendSet::mistake(const std::vector<BackendConfig>& backends) const {
  for (size_t i = 0; i < backends.size(); ++i) {
    const BackendSlot* slot = find(backends[i].name);
    if (slot == nullptr || !slot->mistake()) continue;
    const Mistake& found = *slot->mistake();
    const std::string path = "backends[" + std::to_string(i) + "]";
    return Mistake{found.setting.empty() ? path : path + "." + found.setting, found.reason};
  }
  return std::nullopt;
}

void BackendSet::stuck(const FromChild& record) {
  if (BackendSlot* slot = find(record.message)) slot->stuck(record);
}

void BackendSet::ended(pid_t pid, int wait_status) {
  for (const auto& slot : slots_)
    if (slot->ended(pid, wait_status)) return;
}

void BackendSet::tick(TimePoint now) {
  each(&BackendSlot::tick, now);
  std::erase_if(slots_,
                [](const auto& slot) { return slot->removed() && slot->empty() && !slot->on_trial(); });
}

TimePoint BackendSet::next_deadline() const {
  TimePoint next = TimePoint::max();
  for (const auto& slot : slots_) next = std::min(next, slot->next_deadline());
  return next;
}

bool BackendSet::hosts_gone() const {
  return std::all_of(slots_.begin(), slots_.end(), [](const auto& slot) { return slot->empty(); });
}

std::vector<const ControlChannel*> BackendSet::controls() const {
  std::vector<const ControlChannel*> all;
  for (const auto& slot : slots_)
    for (const auto& process : slot->processes()) all.push_back(&process->control);
  return all;
}

}  // namespace isogate::supervisor
