#include "plugins/k8s/pod/orphaned_pods.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/sandbox_pod.h"
#include "plugins/k8s/presence.h"

namespace isogate::k8s {

bool OrphanedPods::is_orphaned(const Json& lease, const std::set<std::string>& living) {
  Owner owner = like_.owner;
  owner.sandbox_id = metadata_text(lease, "name");
  if (!carries(lease, owner) || lease.at("metadata").at("labels").contains(kLabelAhead)) return false;
  const Record record = read_record(lease);
  const auto is_used = [&](const std::string& each) {
    return each == services_.holder || living.contains(each);
  };
  return !record.pod_uid.empty() && record.place() != Place::kEmptyDir && is_free(services_, lease) &&
         std::none_of(record.users.begin(), record.users.end(), is_used);
}

// A gateway that returns within the time re-attaches its pods. This gateway's front ends its own.
void OrphanedPods::stop_due(const sdk::Call& call) {
  if (services_.config.workspace == Place::kEmptyDir) return;
  const auto living = services_.presence->all(call);
  const std::string selector = selector_of(like_.owner.instance, like_.owner.backend);
  const Json leases = services_.api.list(services_.leases(), {selector, "", 500}, call);
  decltype(since_) still;
  for (const Json& each : leases.at("items")) {
    const std::string id = metadata_text(each, "name");
    try {
      if (!is_orphaned(each, living)) continue;
      const auto now = std::chrono::steady_clock::now();
      const auto known = since_.find(id);
      still[id] = known == since_.end() ? now : known->second;
      if (now - still[id] < std::chrono::seconds(services_.config.orphaned_after_sec)) continue;
      services_.info("no gateway that used " + id + " is there any more: its pod is stopped");
      Parts parts = like_;
      parts.owner.sandbox_id = id;
      SandboxPod(services_, parts, {}).end_unused(call);
    } catch (const sdk::Error& error) {
      if (error.status() == ISOGATE_CANCELLED) throw;
      services_.warn_once(id + " was left running: " + error.what());
    }
  }
  since_ = std::move(still);
}

}  // namespace isogate::k8s
