#include "gateway/front/backends/start_window.h"

#include <algorithm>

namespace isogate::front {
namespace {

constexpr std::chrono::milliseconds kLeast{5}, kLongest{250};
constexpr int kTimes = 3, kWeight = 8;

}  // namespace

void StartWindow::resize(uint32_t most) {
  most_ = most;
  pump();
}

std::variant<StartWindow::Slot, StartWindow::Queued> StartWindow::enter(const std::string& tenant,
                                                                        Ready ready) {
  if (most_ == kUnbounded) return Slot();
  if (starting_.size() >= most_) expire();
  if (starting_.size() < most_ && turn_.empty()) return take();
  auto found = by_tenant_.find(tenant);
  if (found == by_tenant_.end())
    found = by_tenant_.emplace(tenant, turn_.insert(turn_.end(), Tenant{tenant, {}})).first;
  const uint64_t id = next_++;
  found->second->queue.push_back({id, std::move(ready)});
  tenant_of_.emplace(id, found->second);
  pump();
  return Queued{id};
}

bool StartWindow::cancel(uint64_t waiter) {
  const auto found = tenant_of_.find(waiter);
  if (found == tenant_of_.end()) return false;
  const auto tenant = found->second;
  tenant_of_.erase(found);
  std::erase_if(tenant->queue, [waiter](const Waiter& each) { return each.id == waiter; });
  if (!tenant->queue.empty()) return true;
  by_tenant_.erase(tenant->id);
  turn_.erase(tenant);
  return true;
}

StartWindow::Slot StartWindow::take() {
  const uint64_t id = next_++;
  starting_.emplace_hint(starting_.end(), id, Clock::now());
  return {shared_from_this(), id};
}

void StartWindow::leave(uint64_t id) {
  starting_.erase(id);
  pump();
}

void StartWindow::learn(std::chrono::nanoseconds beyond) {
  beyond_ += (std::max(beyond, std::chrono::nanoseconds(0)) - beyond_) / kWeight;
}

StartWindow::Clock::duration StartWindow::patience() const {
  return std::clamp<Clock::duration>(kTimes * beyond_, kLeast, kLongest);
}

void StartWindow::expire() {
  const auto since = Clock::now() - patience();
  while (!starting_.empty() && starting_.begin()->second <= since) starting_.erase(starting_.begin());
}

void StartWindow::pump() {
  if (pumping_ || turn_.empty()) return;  // a callback gave a slot back: the loop below sees it
  pumping_ = true;
  if (starting_.size() >= most_) expire();
  while (!turn_.empty() && starting_.size() < most_) {
    const auto tenant = turn_.begin();
    Waiter waiter = std::move(tenant->queue.front());
    tenant->queue.pop_front();
    tenant_of_.erase(waiter.id);
    if (tenant->queue.empty()) {
      by_tenant_.erase(tenant->id);
      turn_.erase(tenant);
    } else {
      turn_.splice(turn_.end(), turn_, tenant);
    }
    waiter.ready(take());
  }
  pumping_ = false;
  const Clock::time_point due = turn_.empty() ? rings_ : starting_.begin()->second + patience();
  if (due >= rings_) return;
  rings_ = due;
  alarm_.set(due - Clock::now(), [this] {
    rings_ = Clock::time_point::max();
    pump();
  });
}

}  // namespace isogate::front
