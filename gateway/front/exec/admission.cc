#include "gateway/front/exec/admission.h"

#include <algorithm>
#include <vector>

namespace isogate::front {
namespace {

// Puts something in at the end of the round where it `may` run, and takes it out where not.
template <typename T>
void list_as(bool may, T& one, std::list<T*>& turn) {
  if (may == one.listed) return;
  one.listed = may;
  if (may)
    one.place = turn.insert(turn.end(), &one);
  else
    turn.erase(one.place);
}

}  // namespace

Admission::Answer Admission::admit(std::string_view tenant, std::string_view sandbox_id,
                                   std::string_view backend, Ready ready) {
  Sandbox& sandbox = find_or_make(tenant, sandbox_id, backend);
  if (may_run(sandbox) && sandbox.queue.empty() && turn_.empty()) return take(sandbox);
  if (queue_full(sandbox)) {
    Refused refused = refuse(sandbox);
    forget_if_idle(sandbox);
    return refused;
  }
  uint64_t id = next_waiter_++;
  sandbox.queue.push_back({id, std::move(ready)});
  waiters_.emplace(id, &sandbox);
  ++waiting_;
  ++sandbox.tenant->waiting;
  relist(sandbox);
  return Queued{id};
}

Admission::Ticket Admission::readmit(std::string_view tenant, std::string_view sandbox_id,
                                     std::string_view backend) {
  return take(find_or_make(tenant, sandbox_id, backend));
}

bool Admission::cancel(uint64_t waiter) {
  auto found = waiters_.find(waiter);
  if (found == waiters_.end()) return false;
  Sandbox& sandbox = *found->second;
  waiters_.erase(found);
  std::erase_if(sandbox.queue, [&](const Waiter& each) { return each.id == waiter; });
  --waiting_;
  --sandbox.tenant->waiting;
  relist(sandbox);
  forget_if_idle(sandbox);
  return true;
}

void Admission::set_limits(Limits limits) {
  limits_ = limits;
  for (auto& [id, sandbox] : sandboxes_) relist(sandbox);
  pump();
}

void Admission::set_backend_limit(std::string_view backend, uint32_t max_execs) {
  Backend& found = find_or_make(backend);
  found.max_execs = max_execs;
  relist_all(found);
  pump();
}

uint32_t Admission::running(std::string_view sandbox_id) const {
  auto found = sandboxes_.find(sandbox_id);
  return found == sandboxes_.end() ? 0 : found->second.running;
}

Admission::Backend& Admission::find_or_make(std::string_view backend) {
  auto found = backends_.find(backend);
  if (found == backends_.end()) {
    found = backends_.try_emplace(std::string(backend)).first;
    found->second.name = found->first;
  }
  return found->second;
}

Admission::Sandbox& Admission::find_or_make(std::string_view tenant, std::string_view sandbox_id,
                                            std::string_view backend) {
  auto found = sandboxes_.find(sandbox_id);
  if (found != sandboxes_.end()) return found->second;
  auto owner = tenants_.find(tenant);
  if (owner == tenants_.end()) {
    owner = tenants_.try_emplace(std::string(tenant)).first;
    owner->second.id = owner->first;
  }
  found = sandboxes_.try_emplace(std::string(sandbox_id)).first;
  found->second.id = found->first;
  found->second.tenant = &owner->second;
  found->second.backend = &find_or_make(backend);
  ++owner->second.sandboxes;
  return found->second;
}

bool Admission::may_run(const Sandbox& sandbox) const {
  return running_ < limits_.max_execs && sandbox.backend->running < sandbox.backend->max_execs &&
         sandbox.tenant->running < limits_.max_execs_per_tenant &&
         sandbox.running < limits_.max_execs_per_sandbox;
}

bool Admission::queue_full(const Sandbox& sandbox) const {
  uint32_t own = std::min(limits_.exec_queue, limits_.exec_queue_per_tenant);
  return waiting_ >= limits_.exec_queue || sandbox.tenant->waiting >= own ||
         sandbox.queue.size() >= own - own / 4;
}

Admission::Refused Admission::refuse(const Sandbox& sandbox) const {
  if (sandbox.running >= limits_.max_execs_per_sandbox)
    return {std::to_string(sandbox.running) + " execs run in this sandbox (max_execs_per_sandbox) and " +
            std::to_string(sandbox.queue.size()) + " wait; try again when one has ended"};
  const Tenant& tenant = *sandbox.tenant;
  if (tenant.running >= limits_.max_execs_per_tenant ||
      (waiting_ < limits_.exec_queue && tenant.waiting >= limits_.exec_queue_per_tenant))
    return {std::to_string(tenant.running) + " execs of this tenant run and " +
            std::to_string(tenant.waiting) +
            " wait, which is its share (tenant_share_percent); try again when one has ended"};
  if (const Backend& backend = *sandbox.backend; backend.running >= backend.max_execs)
    return {std::to_string(backend.running) + " execs run on the backend " + backend.name +
            ", which is what its host takes (raise its RLIMIT_NOFILE), and " + std::to_string(waiting_) +
            " wait (exec_queue); try again later"};
  return {std::to_string(running_) + " execs run (max_execs) and " + std::to_string(waiting_) +
          " wait (exec_queue); try again later"};
}

Admission::Ticket Admission::take(Sandbox& sandbox) {
  ++running_;
  ++sandbox.tenant->running;
  ++sandbox.running;
  relist(sandbox);
  if (++sandbox.backend->running == sandbox.backend->max_execs) relist_all(*sandbox.backend);
  return Ticket(this, &sandbox);
}

void Admission::give_back(Sandbox& sandbox) {
  --running_;
  --sandbox.tenant->running;
  --sandbox.running;
  Backend& backend = *sandbox.backend;
  if (backend.running-- == backend.max_execs) relist_all(backend);
  relist(sandbox);
  forget_if_idle(sandbox);
  pump();
}

void Admission::relist(Sandbox& sandbox) {
  Tenant& tenant = *sandbox.tenant;
  Backend& backend = *sandbox.backend;
  if (sandbox.queue.empty()) {
    backend.waiting.erase(&sandbox);
  } else {
    backend.waiting.insert(&sandbox);
  }
  const bool room = sandbox.running < limits_.max_execs_per_sandbox && backend.running < backend.max_execs;
  list_as(!sandbox.queue.empty() && room, sandbox, tenant.turn);
  list_as(!tenant.turn.empty() && tenant.running < limits_.max_execs_per_tenant, tenant, turn_);
}

void Admission::relist_all(const Backend& backend) {
  const std::vector<Sandbox*> waiting(backend.waiting.begin(), backend.waiting.end());
  for (Sandbox* each : waiting) relist(*each);
}

void Admission::forget_if_idle(Sandbox& sandbox) {
  if (sandbox.running != 0 || !sandbox.queue.empty()) return;
  Tenant& tenant = *sandbox.tenant;
  sandboxes_.erase(std::string(sandbox.id));
  if (--tenant.sandboxes == 0) tenants_.erase(std::string(tenant.id));
}

void Admission::pump() {
  if (pumping_) return;  // a callback released a ticket: the loop below sees it
  pumping_ = true;
  while (running_ < limits_.max_execs && !turn_.empty()) {
    Tenant& tenant = *turn_.front();
    Sandbox& sandbox = *tenant.turn.front();
    Waiter waiter = std::move(sandbox.queue.front());
    sandbox.queue.pop_front();
    waiters_.erase(waiter.id);
    --waiting_;
    --tenant.waiting;
    turn_.splice(turn_.end(), turn_, tenant.place);
    tenant.turn.splice(tenant.turn.end(), tenant.turn, sandbox.place);
    waiter.ready(take(sandbox));
  }
  pumping_ = false;
}

}  // namespace isogate::front
