#include "plugins/k8s/pod/pool.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/sandbox_pod_impl.h"

namespace isogate::k8s {
namespace {

using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kRenewPool{30}, kTidyAfterFailure{10};
constexpr uint64_t kLeastTidySec = 5, kMostTidySec = 60;
constexpr size_t kAtOnce = 4;  // most of a pod's start is waiting

}  // namespace

Pool::Pool(Services& services, unsigned size, const Parts& like, const Limits& limits)
    : services_(services),
      like_(like),
      orphaned_(services, like),
      pool_(*this, services.host, size, kAtOnce, limits) {}

PooledPod Pool::make(const Limits& limits, const sdk::Call& call) {
  PooledPod ready;
  ready.limits = limits;
  Parts parts = like_;
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

// What cannot be removed now expires.
bool Pool::remove(PooledPod ready) noexcept try {
  const isogate_call soon = cleaning_up();
  ready.pod->drop(sdk::Call(soon));
  return true;
} catch (const std::exception& error) {
  services_.warn(std::string("a sandbox made ahead stays for now: ") + error.what());
  return false;
}

// Leftovers of others do not prevent renewing and creating.
void Pool::tend(const sdk::Call& call) {
  renew(call);
  if (Clock::now() < next_tidy_) return;
  next_tidy_ = Clock::now() + kTidyAfterFailure;
  try {
    remove_leftovers(call);
    orphaned_.stop_due(call);
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
  const std::string selector =
      selector_of(like_.owner.instance, like_.owner.backend) + "," + kLabelAhead + "=ready";
  const Json leases = services_.api.list(services_.leases(), {selector, "", 500}, call);
  for (const Json& each : leases.at("items")) {
    call.check();
    Owner owner = like_.owner;
    owner.sandbox_id = metadata_text(each, "name");
    if (!carries(each, owner) || !is_free(services_, each)) continue;
    services_.info("a sandbox made ahead that no gateway holds is removed: " + owner.sandbox_id);
    remove_version(services_, services_.leases(owner.sandbox_id), each, call);
  }
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
