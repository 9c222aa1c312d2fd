#include "plugins/k8s/record.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "lib/clock.h"
#include "lib/json.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"

namespace isogate::k8s {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Record, pod, pod_uid, kind, object, object_uid, profile, claim, claim_uid,
                                   ahead, ahead_uid, users, image, measured, likeness)

namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kLongestHold{2 * 3600};
constexpr const char* kSomebody = "unknown";  // in place of an invalid holder

[[noreturn]] void damaged() {
  throw sdk::Error(ISOGATE_INTERNAL,
                   "the record on the sandbox's Lease is damaged: delete the Lease, and its files with it");
}

}  // namespace

void Record::forget_pod() {
  for (std::string* of_pod : {&pod, &pod_uid, &object, &object_uid}) of_pod->clear();
  kind = Provision::kPod;
  proof.reset();
  likeness = nullptr;
}

std::optional<Place> Record::place() const {
  if (!measured) return std::nullopt;
  return claim_uid.empty() ? Place::kEmptyDir : Place::kClaim;
}

void write_record(Json& lease, const Record& record, const std::string& holder,
                  std::chrono::seconds duration) {
  Json json = record;
  write_proof(json, record.proof);
  lease["metadata"]["annotations"][kRecord] = json.dump();
  write_holder(lease, holder, duration);
}

void write_holder(Json& lease, const std::string& holder, std::chrono::seconds duration) {
  const std::string now = utc_text(std::time(nullptr)) + ".000000Z";
  lease["spec"] = {
      {"holderIdentity", holder}, {"leaseDurationSeconds", duration.count()}, {"renewTime", now}};
}

Record read_record(const Json& lease) {
  try {
    const std::string text = lease.at("metadata").at("annotations").at(kRecord);
    const Json json = Json::parse(is_shallow(text) ? text : "");
    Record record = json;
    if (!read_proof(json, record.proof)) damaged();
    return record;
  } catch (const Json::exception&) {
    damaged();
  }
}

Hold hold_of(const Json& lease) {
  const Json& spec = member(lease, "spec");
  const Json &identity = member(spec, "holderIdentity"), &lasts = member(spec, "leaseDurationSeconds");
  const bool readable = lease.is_object() && (spec.is_object() || spec.is_null()) &&
                        (identity.is_string() || identity.is_null());
  Hold hold;
  hold.holder = readable ? text_at(spec, "holderIdentity") : kSomebody;
  hold.version = metadata_text(lease, "uid") + "/" + metadata_text(lease, "resourceVersion") + "/" +
                 text_at(spec, "renewTime");
  // A negative number becomes a very large one here.
  const uint64_t seconds = lasts.is_number_integer() ? lasts.get<uint64_t>() : UINT64_MAX;
  hold.lasts = std::chrono::seconds(std::min<uint64_t>(seconds, kLongestHold.count()));
  return hold;
}

}  // namespace isogate::k8s
