#include "gateway/front/admission.h"

#include <algorithm>

namespace isogate::front {

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  release();
  owner_ = std::exchange(other.owner_, nullptr);
  sandbox_ = std::exchange(other.sandbox_, nullptr);
  return *this;
}

void Admission::Ticket::release() {
  Admission* owner = std::exchange(owner_, nullptr);
  Sandbox* sandbox = std::exchange(sandbox_, nullptr);
  if (owner) owner->give_back(*sandbox);
}

Admission::Answer Admission::admit(std::string_view sandbox_id, Ready ready) {
  auto found = sandboxes_.find(sandbox_id);
  if (found == sandboxes_.end()) {
    found = sandboxes_.try_emplace(std::string(sandbox_id)).first;
    found->second.id = found->first;
  }
  Sandbox& sandbox = found->second;
  bool room = running_ < limits_.max_execs && sandbox.running < limits_.max_execs_per_sandbox;
  if (room && sandbox.queue.empty() && turn_.empty()) return take(sandbox);
  if (queue_full(sandbox)) {
    Refused refused = refuse(sandbox);
    forget_if_idle(sandbox);
    return refused;
  }
  uint64_t id = next_waiter_++;
  sandbox.queue.push_back({id, std::move(ready)});
  waiters_.emplace(id, &sandbox);
  ++waiting_;
  relist(sandbox);
  return Queued{id};
}

bool Admission::cancel(uint64_t waiter) {
  auto found = waiters_.find(waiter);
  if (found == waiters_.end()) return false;
  Sandbox& sandbox = *found->second;
  waiters_.erase(found);
  std::erase_if(sandbox.queue, [&](const Waiter& each) { return each.id == waiter; });
  --waiting_;
  relist(sandbox);
  forget_if_idle(sandbox);
  return true;
}

void Admission::set_limits(Limits limits) {
  limits_ = limits;
  for (auto& [id, sandbox] : sandboxes_) relist(sandbox);
  pump();
}

uint32_t Admission::running(std::string_view sandbox_id) const {
  auto found = sandboxes_.find(sandbox_id);
  return found == sandboxes_.end() ? 0 : found->second.running;
}

bool Admission::queue_full(const Sandbox& sandbox) const {
  uint32_t share = limits_.exec_queue - limits_.exec_queue / 4;
  return waiting_ >= limits_.exec_queue || sandbox.queue.size() >= share;
}

Admission::Refused Admission::refuse(const Sandbox& sandbox) const {
  if (sandbox.running >= limits_.max_execs_per_sandbox)
    return {std::to_string(sandbox.running) + " execs run in this sandbox (max_execs_per_sandbox) and " +
            std::to_string(sandbox.queue.size()) + " wait; try again when one has ended"};
  return {std::to_string(running_) + " execs run (max_execs) and " + std::to_string(waiting_) +
          " wait (exec_queue); try again later"};
}

Admission::Ticket Admission::take(Sandbox& sandbox) {
  ++running_;
  ++sandbox.running;
  relist(sandbox);
  return Ticket(this, &sandbox);
}

void Admission::give_back(Sandbox& sandbox) {
  --running_;
  --sandbox.running;
  relist(sandbox);
  forget_if_idle(sandbox);
  pump();
}

void Admission::relist(Sandbox& sandbox) {
  bool may = !sandbox.queue.empty() && sandbox.running < limits_.max_execs_per_sandbox;
  if (may == sandbox.listed) return;
  sandbox.listed = may;
  if (may)
    sandbox.turn = turn_.insert(turn_.end(), &sandbox);
  else
    turn_.erase(sandbox.turn);
}

void Admission::forget_if_idle(Sandbox& sandbox) {
  if (sandbox.running == 0 && sandbox.queue.empty()) sandboxes_.erase(std::string(sandbox.id));
}

void Admission::pump() {
  if (pumping_) return;  // a callback released a ticket: the loop below sees it
  pumping_ = true;
  while (running_ < limits_.max_execs && !turn_.empty()) {
    Sandbox& sandbox = *turn_.front();
    Waiter waiter = std::move(sandbox.queue.front());
    sandbox.queue.pop_front();
    waiters_.erase(waiter.id);
    --waiting_;
    turn_.splice(turn_.end(), turn_, sandbox.turn);
    waiter.ready(take(sandbox));
  }
  pumping_ = false;
}

}  // namespace isogate::front
