// From a pod made ahead to a sandbox's.
#include "plugins/k8s/measured_pod.h"
#include "plugins/k8s/pool.h"
#include "plugins/k8s/sandbox_pod.h"

namespace isogate::k8s {

// With the Lease held. What is recorded stays the pool's by its names, and goes with this Lease.
bool SandboxPod::take(Pool& pool, const sdk::Call& call) {
  Parts taker = parts_;
  taker.lease_uid = lease_.uid();
  auto ready = pool.take(limits_, taker, call);
  if (!ready) return false;
  lease_.record() = ready->record;
  lease_.record().users = {services_.holder};
  parts_.lease_uid = lease_.uid();
  parts_.pod = ready->record.pod;
  parts_.claim = ready->record.claim;
  link_ = std::move(ready->link);
  fresh_ = true;
  tie();
  const bool measured = lease_.record().evidence.has_value();
  if (measured) {
    attach();
    lease_.record().measured = true;
  }
  lease_.write(!measured, call);
  follow();
  return true;
}

bool SandboxPod::warm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && fresh_ && link_ && link_->alive();
}

bool SandboxPod::renew(const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  return lease_.hold(call);
}

// A third of a second, for what leaves a question without answer.
bool SandboxPod::measure(const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  const auto gateway = services_.gateway();
  if (!gateway || !link_) return false;
  isogate_evidence found{};
  found.struct_size = sizeof found;
  const isogate_evidence_request request{sizeof request, gateway->port, sdk::str(gateway->address),
                                         sdk::str(gateway->listeners)};
  link_->evidence(call, request, found);
  lease_.record().evidence = found;
  lease_.record().gateway_address = gateway->address;
  lease_.record().gateway_port = gateway->port;
  lease_.record().gateway_listeners = tried_of(gateway->address, gateway->port, gateway->listeners);
  return true;
}

std::optional<ReadyPod> SandboxPod::give_to(const Parts& taker, const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  if (!link_ || !link_->alive()) return std::nullopt;
  if (const std::string why = why_other(call); !why.empty()) {
    services_.warn("the pod " + lease_.record().pod + " that was made ahead is not used: " + why);
    return std::nullopt;
  }
  ReadyPod given{lease_.record(), link_};
  given.record.ahead = parts_.owner.sandbox_id;
  given.record.ahead_uid = lease_.uid();
  if (!lease_.give_to(taker, call)) return std::nullopt;
  services_.pods.forget(given.record.pod);
  lease_.record() = {};
  link_.reset();
  return given;
}

void SandboxPod::drop(const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  remove_all(call, Patience::kNone);
}

}  // namespace isogate::k8s
