#include "plugins/k8s/presence.h"

#include <algorithm>

#include "lib/hash.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"
#include "plugins/common/wait_for.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::seconds kRenew{30}, kLasts{120};
constexpr std::chrono::milliseconds kAskPresence{10'000};
constexpr const char* kGeneration = "isogate.io/generation";

}  // namespace

Presence::Presence(Services& services)
    : services_(services), stop_(or_throw(make_event())), generation_(random_hex(8)) {}

Presence::~Presence() {
  signal_event(stop_.get());
  if (!thread_.joinable()) return;
  thread_.join();
  if (superseded_ || services_.keeps) return;  // it expires
  try {
    remove_version(services_, lease_of(services_.holder), written_, Budget(kAskPresence));
  } catch (const std::exception&) {  // then it expires
  }
}

Resource Presence::lease_of(const std::string& holder) const {
  const Owner& owner = services_.any.owner;
  return services_.leases("isogate-gateway-" +
                          sha256_hex(owner.instance + "\n" + owner.backend + "\n" + holder).substr(0, 32));
}

void Presence::begin(const sdk::Call& call) {
  if (begun_) return;
  const auto lock = lock_for(beginning_, call);
  if (begun_) return;
  renew(Budget(call, kAskPresence));
  all(Budget(call, kAskPresence));  // from now on their silence is measured
  thread_ = start_thread([this] { run(); });
  begun_ = true;
}

void Presence::run() {
  while (!is_signalled(stop_.get(), kRenew)) {
    try {
      renew(Budget(kAskPresence, stop_.get()));
      all(Budget(kAskPresence, stop_.get()));
    } catch (const std::exception& error) {
      services_.warn_once(std::string("other gateways may think that this one is gone: ") + error.what());
    }
  }
}

// Called only by this thread and begin(), which do not overlap. Overwrites what an earlier generation has
// written; does nothing once a later one has.
void Presence::renew(const Budget& budget) {
  if (superseded_) return;
  const Resource what = lease_of(services_.holder);
  nlohmann::json lease = {
      {"apiVersion", "coordination.k8s.io/v1"},
      {"kind", "Lease"},
      {"metadata", {{"name", what.name}, {"labels", gateway_labels_of(services_.any.owner)}}}};
  lease["metadata"]["annotations"][kGeneration] = generation_;
  write_holder(lease, services_.holder, kLasts);
  const bool was_there = net::unless_gone([&] {
    nlohmann::json there = services_.api.get(what, budget);
    (void)uid_of(there);
    Json& notes = there["metadata"]["annotations"];
    superseded_ = begun_ && text_at(notes, kGeneration) != generation_;
    if (superseded_) return;
    if (!notes.is_object()) notes = Json::object();
    notes[kGeneration] = generation_;
    there["spec"] = lease.at("spec");
    written_ = services_.api.replace(what, there, budget);
  });
  if (!was_there) written_ = services_.api.create(services_.leases(), lease, budget);
}

std::set<std::string> Presence::all(const Budget& budget, std::chrono::seconds forgotten) {
  const std::string selector = selector_of(services_.any.owner) + "," + kLabelGateway + "=true";
  const Json leases = services_.api.list(services_.leases(), {selector, "", 500}, budget);
  std::set<std::string> found;
  for (const Json& each : leases.at("items")) {
    if (!lapsed(each))
      found.insert(hold_of(each).holder);
    else if (lapsed(each, forgotten))
      remove(each, budget);
  }
  return found;
}

// That gateway may have returned meanwhile, and then it stays.
void Presence::remove(const Json& lease, const Budget& budget) try {
  remove_version(services_, services_.leases(metadata_text(lease, "name")), lease, budget);
} catch (const sdk::Error& error) {
  if (error.status() == ISOGATE_CANCELLED) throw;
  services_.warn_once(std::string("the Lease of a gateway that is gone stays for now: ") + error.what());
}

bool Presence::lapsed(const Json& lease, std::chrono::seconds least) {
  const Hold hold = hold_of(lease);
  return services_.renewals.lapsed(metadata_text(lease, "name"), hold.version, std::max(hold.lasts, least));
}

bool Presence::lives(const std::string& holder, const Budget& budget) {
  const auto lease = services_.api.find(lease_of(holder), budget);
  if (!lease) return false;
  (void)uid_of(*lease);
  return hold_of(*lease).holder == holder && !lapsed(*lease);
}

}  // namespace isogate::k8s
