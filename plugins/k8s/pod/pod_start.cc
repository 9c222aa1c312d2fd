#include "plugins/k8s/pod/pod_start.h"

#include <nlohmann/json.hpp>

#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

// Of a claim: set by the volume controller, once it knows which provisioner must create the volume.
constexpr const char* kProvisioners[] = {
    "volume.kubernetes.io/storage-provisioner",
    "volume.beta.kubernetes.io/storage-provisioner",
};
// By the scheduler, if the class waits for a first consumer.
constexpr const char* kNode = "volume.kubernetes.io/selected-node";

std::string provisioner_of(const Json& annotations) {
  for (const char* each : kProvisioners)
    if (std::string found = printable_text(annotations, each); !found.empty()) return found;
  return "";
}

std::string time_of(const Json& event) {
  const std::string last = printable_text(event, "lastTimestamp");
  return last.empty() ? printable_text(event, "eventTime") : last;
}

std::string last_warning(Services& services, const std::string& uid, const Budget& budget) try {
  if (uid.empty()) return "";
  const Selection selection{"", "involvedObject.uid=" + uid + ",type=Warning", 500};
  const Json events = services.api.list({"v1", services.name_space, "events"}, selection, budget);
  Json last;
  for (const Json& each : events.at("items"))
    if (time_of(each) >= time_of(last)) last = each;
  return last.is_null() ? "" : "; " + printable_text(last, "reason") + ": " + printable_text(last, "message");
} catch (const sdk::Error&) {
  return "";
}

std::string what_its_claim_lacks(Services& services, const Record& record, const Budget& budget) try {
  if (record.claim_uid.empty()) return "";
  return what_lacks(services.api.get(services.claims(record.claim), budget));
} catch (const sdk::Error&) {
  return "";
}

// The pod is already removed when a person reads this.
std::string where_more(const Services& services, const Record& record) {
  const std::string kubectl = "`kubectl -n " + services.name_space + " ";
  return "; " + kubectl + "describe pod " + record.pod + "` shows more while it waits, " + kubectl +
         "get events` afterwards";
}

}  // namespace

std::string what_lacks(const Json& claim) {
  if (text_at(member(claim, "status"), "phase") == "Bound") return "";
  const Json &metadata = member(claim, "metadata"), &annotations = member(metadata, "annotations");
  const std::string of_class = printable_text(member(claim, "spec"), "storageClassName");
  const std::string maker = provisioner_of(annotations);
  const std::string what = "its PersistentVolumeClaim " + printable_text(metadata, "name") +
                           (of_class.empty() ? "" : " of the storage class `" + of_class + "`");
  if (!maker.empty()) return what + " is not provisioned yet by " + maker;
  if (!text_at(annotations, kNode).empty()) return what + " is not provisioned yet";
  if (!of_class.empty()) return what + " has no provisioner: does the storage class exist?";
  return what + " has no storage class: write storage_class, or give the cluster a default one";
}

bool waits_for_volume(const PodState& state) {
  if (!state.waits_for_node) return false;
  return state.problem.find("PersistentVolumeClaim") != std::string::npos ||
         state.problem.find("storageclass") != std::string::npos;
}

std::string why_not_started(Services& services, const Record& record, const PodState& state,
                            const Budget& budget) {
  if (waits_for_volume(state)) {
    const std::string claim = what_its_claim_lacks(services, record, budget);
    return state.problem + (claim.empty() ? "" : "; " + claim) +
           last_warning(services, record.claim_uid, budget) + where_more(services, record);
  }
  if (!state.problem.empty()) return state.problem;
  if (state.ended) return state.how;
  return "it does not run after " + std::to_string(services.config.ready_timeout_sec) + " s" +
         (state.waits.empty() ? "" : " (" + state.waits + ")") +
         last_warning(services, record.pod_uid, budget) + where_more(services, record);
}

}  // namespace isogate::k8s
