// What a pod needs beside itself, and what was measured in it.
#include <thread>

#include "plugins/k8s/sandbox_pod_impl.h"

namespace isogate::k8s {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kEnding{60};
constexpr std::chrono::milliseconds kVolume{3'000}, kPause{150};

std::string uid_of(const Json& object) {
  return object.value("metadata", Json::object()).value("uid", std::string());
}

bool is_ending(const Json& object) { return object.at("metadata").contains("deletionTimestamp"); }

std::string tried_of(const isogate_evidence_request& request) {
  return k8s::tried_of(std::string(sdk::view(request.gateway_address)), request.gateway_port,
                       std::string(sdk::view(request.gateway_listeners)));
}

// What must be the same in every pod of a sandbox. Namespaces differ.
bool same_profile(const isogate_evidence& a, const isogate_evidence& b) {
  return a.flags == b.flags && a.uid == b.uid && a.gid == b.gid && a.no_new_privs == b.no_new_privs &&
         a.seccomp_mode == b.seccomp_mode && a.cap_inheritable == b.cap_inheritable &&
         a.cap_permitted == b.cap_permitted && a.cap_effective == b.cap_effective &&
         a.cap_bounding == b.cap_bounding && a.cap_ambient == b.cap_ambient &&
         a.limits.memory_bytes == b.limits.memory_bytes && a.limits.cpu_millis == b.limits.cpu_millis &&
         a.limits.pids == b.limits.pids;
}

}  // namespace

// Made anew for each pod, so that none runs under one that somebody else has changed.
void SandboxPod::prepare_policy(const sdk::Call& call) {
  const Json policy = policy_of(services_.config, parts_);
  const std::string& name = parts_.owner.sandbox_id;
  for (const auto since = Clock::now();;) {
    try {
      services_.api.create(services_.policies(), policy, call);
      return;
    } catch (const ApiError& error) {
      if (error.status() != ISOGATE_ALREADY_EXISTS || Clock::now() - since > kEnding) throw;
    }
    try {
      const Json there = services_.api.get(services_.policies(name), call);
      if (!carries(there, parts_.owner))
        throw sdk::Error(ISOGATE_UNAVAILABLE,
                         "there is a NetworkPolicy with this sandbox's name that this "
                         "gateway did not make: it is left alone, and nothing runs");
      remove_object(services_, services_.policies(name), uid_of(there), call);
    } catch (const ApiError& error) {
      if (error.status() != ISOGATE_NOT_FOUND) throw;
    }
    call.check();
  }
}

void SandboxPod::prepare_workspace(const sdk::Call& call) {
  if (services_.config.workspace == Place::kEmptyDir) return lease_.record().claim_uid.clear();
  if (!lease_.record().claim_uid.empty()) return adopt_workspace(call);
  Record& record = lease_.record();
  try {
    record.claim_uid =
        uid_of(services_.api.create(services_.claims(), claim_of(services_.config, parts_), call));
    return wait_for_volume(call);
  } catch (const ApiError& error) {
    if (error.status() != ISOGATE_ALREADY_EXISTS) throw;
  }
  // This sandbox's, made when its maker was killed.
  const Json there = services_.api.get(services_.claims(record.claim), call);
  if (!carries(there, parts_.owner) || !belongs_to(there, lease_.uid()))
    throw sdk::Error(
        ISOGATE_UNAVAILABLE,
        "there is a PersistentVolumeClaim with the name of this sandbox's that this gateway did not "
        "make: it is left alone, and nothing runs");
  record.claim_uid = uid_of(there);
}

// A pod that comes before its volume is put off by the scheduler, for seconds. Where volumes are made only
// for pods there is no use in waiting: seen once, it is not waited for again.
void SandboxPod::wait_for_volume(const sdk::Call& call) {
  if (services_.volumes_wait_for_pods) return;
  for (const auto since = Clock::now(); Clock::now() - since < kVolume; std::this_thread::sleep_for(kPause)) {
    call.check();
    const Json claim = services_.api.get(services_.claims(lease_.record().claim), call);
    if (claim.value("status", Json::object()).value("phase", "") == "Bound") return;
  }
  services_.volumes_wait_for_pods = true;
}

void SandboxPod::adopt_workspace(const sdk::Call& call) {
  try {
    const Json there = services_.api.get(services_.claims(lease_.record().claim), call);
    if (uid_of(there) != lease_.record().claim_uid || is_ending(there)) lost();
    if (!belongs_to(there, owner_of(services_, lease_.record(), lease_.uid(), call)))
      unavailable(
          "the PersistentVolumeClaim on this sandbox's record is not this sandbox's: it is left alone");
  } catch (const ApiError& error) {
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    lost();
  }
}

// Throws where its files are, and this configuration would begin without them. Nothing of it is touched.
void SandboxPod::check_place(const sdk::Call& call) {
  const auto place = lease_.record().place();
  if (!place || place == services_.config.workspace || !is_there(*place, call)) return;
  const bool on_claim = place == Place::kClaim;
  const std::string recorded = on_claim ? "claim" : "empty_dir", wanted = on_claim ? "empty_dir" : "claim";
  throw sdk::Error(ISOGATE_UNSUPPORTED,
                   "the workspace of this sandbox is " +
                       std::string(on_claim ? "on a PersistentVolumeClaim" : "in its pod, which still runs") +
                       ", and the configuration demands workspace: " + wanted +
                       ": nothing was touched. Write workspace: " + recorded +
                       " again, or remove the sandbox and its files: DELETE with ?purge=true");
}

// Also where these credentials may not look.
bool SandboxPod::is_there(Place place, const sdk::Call& call) {
  const Record& record = lease_.record();
  if (place == Place::kEmptyDir) {
    const auto pod = own_pod(services_, record, owner_of(services_, record, lease_.uid(), call), call);
    return pod && !state_of(*pod).ended;
  }
  try {
    const Json there = services_.api.get(services_.claims(record.claim), call);
    return uid_of(there) == record.claim_uid && !is_ending(there);
  } catch (const ApiError& error) {
    if (error.http_status() == 403) return true;
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    return false;
  }
}

// Its files do, or would.
bool SandboxPod::ends_with_pod() {
  return services_.config.workspace == Place::kEmptyDir || lease_.record().place() == Place::kEmptyDir;
}

isogate_evidence SandboxPod::evidence(const sdk::Call& call, const isogate_evidence_request& request) {
  const auto lock = lock_for(mutex_, call);
  isogate_evidence found{};
  in_time(call, [&](const sdk::Call& within) {
    if (closing_) being_closed();
    services_.learn_gateway(request);
    const Record& record = lease_.record();
    if (record.evidence && covers(record.gateway_listeners, tried_of(request)))
      found = *record.evidence;
    else if (fresh_ && link_)
      found = measure_now(request, within);
    else
      found = replace_and_measure(request, within);
  });
  return found;
}

isogate_evidence SandboxPod::measure_now(const isogate_evidence_request& request, const sdk::Call& call) {
  isogate_evidence found{};
  found.struct_size = sizeof found;
  link_->evidence(call, request, found);
  proven_ = {found, std::string(sdk::view(request.gateway_address)), request.gateway_port,
             std::string(sdk::view(request.gateway_listeners))};
  keep_proof(found, call);
  return found;
}

// It was measured, and not against all that this gateway listens on.
isogate_evidence SandboxPod::replace_and_measure(const isogate_evidence_request& request,
                                                 const sdk::Call& call) {
  if (!lease_.find(call) || lease_.uid() != parts_.lease_uid) lost();
  if (!lease_.record().evidence || !proven_)
    unavailable("nothing was measured before the first command of this sandbox");
  const std::string why = "it was not tried against all listeners of this gateway";
  if (!other_users(call).empty())
    unavailable("another gateway uses the pod of this sandbox, and " + why + ": give them the same `listen`");
  if (ends_with_pod())
    unavailable("the files of this sandbox are in its pod, and " + why +
                ": end it with DELETE, or give it the "
                "listeners that it had");
  proven_ = {proven_->evidence, std::string(sdk::view(request.gateway_address)), request.gateway_port,
             std::string(sdk::view(request.gateway_listeners))};
  if (!make_anew(why, call)) busy("");
  prove_again(call);
  return *lease_.record().evidence;
}

// A pod that takes the place of a dead one has to have the same isolation profile.
void SandboxPod::prove_again(const sdk::Call& call) {
  isogate_evidence found{};
  found.struct_size = sizeof found;
  try {
    if (!proven_) throw sdk::Error(ISOGATE_UNAVAILABLE, "nobody measured the first pod of this sandbox");
    const isogate_evidence_request request{sizeof request, proven_->port, sdk::str(proven_->address),
                                           sdk::str(proven_->listeners)};
    link_->evidence(call, request, found);
    if (!same_profile(found, proven_->evidence))
      throw sdk::Error(ISOGATE_UNAVAILABLE,
                       "the pod that was recreated does not isolate as the first one did: refused");
    keep_proof(found, call);
  } catch (...) {
    discard_now();
    give_up();
    throw;
  }
}

void SandboxPod::keep_proof(const isogate_evidence& found, const sdk::Call& call) {
  Record& record = lease_.record();
  record.evidence = found;
  record.gateway_address = proven_->address;
  record.gateway_port = proven_->port;
  record.gateway_listeners = tried_of(proven_->address, proven_->port, proven_->listeners);
  record.measured = true;
  lease_.write(false, call);
}

void SandboxPod::purge(const sdk::Call& call, bool stranger) {
  const auto lock = lock_for(mutex_, call);
  closing_ = true;
  if (stranger && lease_.find(call) && has_others()) return forget_user();
  remove_all(call);
}

// The Lease last: as long as it is there the rest is found by it.
void SandboxPod::remove_all(const sdk::Call& call, Patience patience) {
  if (lease_.find(call)) parts_.lease_uid = lease_.uid();
  if (parts_.lease_uid.empty()) return;
  discard(call, patience);
  const Record& record = lease_.record();
  const std::string owner = owner_of(services_, record, parts_.lease_uid, call);
  remove_parts(services_, record, parts_.owner.sandbox_id, owner, call);
  lease_.remove(call);
}

}  // namespace isogate::k8s
