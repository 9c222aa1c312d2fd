#include "plugins/k8s/lease.h"

#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

constexpr std::chrono::seconds kWorkBeyondOpening{60};

const char* const kStranger =
    "there is a Lease with this sandbox's name that this gateway did not make: it is left alone, and nothing "
    "runs";

}  // namespace

void Lease::learn(Json lease) {
  if (!carries(lease, parts_.owner)) unavailable(kStranger);
  uid_ = uid_of(lease);
  ending_ = lease.at("metadata").contains("deletionTimestamp");
  record_ = read_record(lease);
  hold_ = hold_of(lease);
  lease_ = std::move(lease);
}

bool Lease::find(const Budget& budget) {
  auto lease = services_.api.find(services_.leases(parts_.owner.sandbox_id), budget);
  if (lease)
    learn(std::move(*lease));
  else
    uid_.clear();
  return lease.has_value();
}

void Lease::put(Json lease, bool hold) {
  const auto duration = std::chrono::seconds(services_.config.open_timeout_sec) + kWorkBeyondOpening;
  write_record(lease, record_, hold ? services_.holder : "", duration);
  lease_ = std::move(lease);
}

bool Lease::create(const Budget& budget) {
  put(lease_of(parts_), true);
  try {
    learn(services_.api.create(services_.leases(), lease_, budget));
    return true;
  } catch (const NetError& error) {
    if (error.status() != ISOGATE_ALREADY_EXISTS) throw;
    return false;
  }
}

bool Lease::replace(bool hold, const Budget& budget) {
  put(lease_, hold);
  try {
    learn(services_.api.replace(services_.leases(parts_.owner.sandbox_id), lease_, budget));
    return true;
  } catch (const NetError& error) {
    if (error.reason() != "Conflict" && error.status() != ISOGATE_NOT_FOUND) throw;
    return false;
  }
}

void Lease::write(bool hold, const Budget& budget) {
  if (!replace(hold, budget)) unavailable("another gateway is at work on this sandbox: try again");
}

bool Lease::give_to(const Parts& taker, const Budget& budget) {
  give_lease(lease_, taker);
  return replace(false, budget);
}

void Lease::remove(const Budget& budget) {
  remove_ahead(budget);
  if (!uid_.empty()) remove_object(services_, services_.leases(parts_.owner.sandbox_id), uid_, budget);
  uid_.clear();
  record_ = {};
}

// If that belongs to this Lease, whatever the record has.
void Lease::remove_ahead(const Budget& budget) {
  if (record_.ahead_uid.empty()) return;
  const auto ahead = services_.api.find(services_.leases(record_.ahead), budget);
  if (!ahead || !belongs_to(*ahead, uid_.empty() ? parts_.lease_uid : uid_)) return;
  remove_object(services_, services_.leases(record_.ahead), record_.ahead_uid, budget);
}

bool Lease::is_held() const {
  return !hold_.holder.empty() &&
         !services_.renewals.lapsed(parts_.owner.sandbox_id, hold_.version, hold_.lasts);
}

bool Lease::is_others() const { return hold_.holder != services_.holder && is_held(); }

std::vector<Json> sandbox_leases(Services& services, bool ahead, const Budget& budget) {
  Owner owner = services.any.owner;
  const std::string selector = selector_of(owner) + (ahead ? std::string(",") + kLabelAhead + "=ready" : "");
  const Json all = services.api.list(services.leases(), {selector, "", 500}, budget);
  std::vector<Json> found;
  for (const Json& each : all.at("items")) {
    owner.sandbox_id = metadata_text(each, "name");
    if (!carries(each, owner)) continue;
    if (ahead || !each.at("metadata").at("labels").contains(kLabelAhead)) found.push_back(each);
  }
  return found;
}

bool is_free(Services& services, const Json& lease) {
  const Hold hold = hold_of(lease);
  return hold.holder.empty() ||
         services.renewals.lapsed(metadata_text(lease, "name"), hold.version, hold.lasts);
}

}  // namespace isogate::k8s
