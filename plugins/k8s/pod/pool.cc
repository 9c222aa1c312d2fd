#include "plugins/k8s/pod/pool.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kRenewPool{30}, kTidyAfterFailure{10};
constexpr uint64_t kLeastTidySec = 5, kMostTidySec = 60;
constexpr size_t kAtOnce = 4;  // most of a pod's start is waiting

}  // namespace

Pool::Pool(Services& services)
    : services_(services),
      pool_(*this, services.host, services.config.warm_pool, kAtOnce, limits_of(services.config, {})) {}

PooledPod Pool::make(const Limits& limits, const sdk::Call& call) {
  PooledPod ready;
  ready.limits = limits;
  Parts parts = services_.any;
  parts.owner.sandbox_id = random_sandbox_id();
  parts.ahead = true;
  ready.pod = std::make_unique<SandboxPod>(services_, parts, limits);
  ready.pod->open({}, call);
  ready.renewed = Clock::now();
  try {
    ready.measured = ready.pod->measure(call);
  } catch (...) {
    remove(std::move(ready));
    throw;
  }
  return ready;
}

// Leftovers of others do not prevent renewing and creating.
void Pool::tend(const sdk::Call& call) {
  renew(call);
  if (Clock::now() < next_tidy_) return;
  next_tidy_ = Clock::now() + kTidyAfterFailure;
  try {
    remove_leftovers(call);
    stop_orphaned(call);
    const uint64_t again = std::clamp(services_.config.orphaned_after_sec, kLeastTidySec, kMostTidySec);
    next_tidy_ = Clock::now() + seconds(again);
  } catch (const std::exception& error) {
    call.check();
    services_.warn_once(std::string("what other gateways have left stays for now: ") + error.what());
  }
}

// The first ones are created before it is known what to measure.
bool Pool::is_due(const PooledPod& ready) const {
  return Clock::now() - ready.renewed > kRenewPool || (!ready.measured && services_.gateway());
}

// Hidden from takers meanwhile: a taker writes its Lease, too.
void Pool::renew(const sdk::Call& call) {
  while (auto due = pool_.take_if([this](const PooledPod& each) { return is_due(each); })) {
    try {
      if (!due->pod->renew(call)) continue;
      due->renewed = Clock::now();
      if (!due->measured) due->measured = due->pod->measure(call);
    } catch (...) {
      pool_.put(std::move(*due));
      throw;
    }
    pool_.put(std::move(*due));
  }
}

void Pool::remove_leftovers(const sdk::Call& call) {
  for (const Json& each : sandbox_leases(services_, true, call)) {
    call.check();
    if (!is_free(services_, each)) continue;
    const std::string id = metadata_text(each, "name");
    services_.info("a sandbox made ahead that no gateway holds is removed: " + id);
    remove_version(services_, services_.leases(id), each, call);
  }
}

bool Pool::is_orphaned(const Json& lease, const std::set<std::string>& living) {
  const Record record = read_record(lease);
  const auto is_used = [&](const std::string& each) {
    return each == services_.holder || living.contains(each);
  };
  return !record.pod_uid.empty() && record.place() != Place::kEmptyDir && is_free(services_, lease) &&
         std::none_of(record.users.begin(), record.users.end(), is_used);
}

// A gateway that returns within the time re-attaches its pods. This gateway's front ends its own. What has
// not ended by then, as on a lost node, is looked at again the next time.
void Pool::stop_orphaned(const sdk::Call& call) {
  if (services_.config.workspace == Place::kEmptyDir) return;
  const auto living = services_.presence.all(call);
  decltype(orphaned_) still;
  for (const Json& each : sandbox_leases(services_, false, call)) {
    const std::string id = metadata_text(each, "name");
    try {
      if (!is_orphaned(each, living)) continue;
      const auto now = Clock::now();
      const auto known = orphaned_.find(id);
      still[id] = known == orphaned_.end() ? now : known->second;
      if (now - still[id] < seconds(services_.config.orphaned_after_sec)) continue;
      Parts parts = services_.any;
      parts.owner.sandbox_id = id;
      if (SandboxPod(services_, parts, {}).end_unused(call))
        services_.info("no gateway that used " + id + " is there any more: its pod was stopped");
    } catch (const sdk::Error& error) {
      if (error.status() == ISOGATE_CANCELLED) throw;
      services_.warn_once(id + " was left running: " + error.what());
    }
  }
  orphaned_ = std::move(still);
}

std::optional<ReadyPod> Pool::take(const Limits& limits, const Parts& taker, const sdk::Call& call) {
  for (;;) {
    call.check();
    auto ready = pool_.pick(limits);
    if (!ready) return std::nullopt;
    try {
      if (auto given = ready->pod->give_to(taker, call)) return given;
    } catch (const sdk::Error& error) {
      remove(std::move(*ready));
      if (error.status() == ISOGATE_CANCELLED) throw;
      services_.warn(std::string("a sandbox made ahead could not be taken: ") + error.what());
      continue;
    }
    remove(std::move(*ready));
  }
}

}  // namespace isogate::k8s
