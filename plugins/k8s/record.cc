#include "plugins/k8s/record.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "plugins/k8s/api_error.h"
#include "plugins/k8s/profile.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

constexpr std::chrono::seconds kLongestHold{2 * 3600};

struct Field {
  const char* name;
  uint64_t isogate_evidence::*value;
};
constexpr Field kFields[] = {
    {"cap_inheritable", &isogate_evidence::cap_inheritable},
    {"cap_permitted", &isogate_evidence::cap_permitted},
    {"cap_effective", &isogate_evidence::cap_effective},
    {"cap_bounding", &isogate_evidence::cap_bounding},
    {"cap_ambient", &isogate_evidence::cap_ambient},
    {"ns_mnt", &isogate_evidence::ns_mnt},
    {"ns_pid", &isogate_evidence::ns_pid},
    {"ns_net", &isogate_evidence::ns_net},
    {"ns_ipc", &isogate_evidence::ns_ipc},
    {"ns_uts", &isogate_evidence::ns_uts},
    {"ns_user", &isogate_evidence::ns_user},
    {"ns_cgroup", &isogate_evidence::ns_cgroup},
    {"visible_processes", &isogate_evidence::visible_processes},
};

Json json_of(const isogate_evidence& evidence) {
  Json json = {{"flags", evidence.flags},
               {"uid", evidence.uid},
               {"gid", evidence.gid},
               {"no_new_privs", evidence.no_new_privs},
               {"seccomp_mode", evidence.seccomp_mode},
               {"memory_bytes", evidence.limits.memory_bytes},
               {"cpu_millis", evidence.limits.cpu_millis},
               {"pids", evidence.limits.pids}};
  for (const Field& field : kFields) json[field.name] = evidence.*field.value;
  return json;
}

isogate_evidence evidence_of(const Json& json) {
  isogate_evidence evidence{};
  evidence.struct_size = sizeof evidence;
  json.at("flags").get_to(evidence.flags);
  json.at("uid").get_to(evidence.uid);
  json.at("gid").get_to(evidence.gid);
  json.at("no_new_privs").get_to(evidence.no_new_privs);
  json.at("seccomp_mode").get_to(evidence.seccomp_mode);
  json.at("memory_bytes").get_to(evidence.limits.memory_bytes);
  json.at("cpu_millis").get_to(evidence.limits.cpu_millis);
  json.at("pids").get_to(evidence.limits.pids);
  for (const Field& field : kFields) json.at(field.name).get_to(evidence.*field.value);
  return evidence;
}

// Older records lack it.
Provision kind_of(const Json& json) {
  const std::string name = json.value("kind", name_of(Provision::kPod));
  if (const auto kind = provision_named(name)) return *kind;
  throw Json::other_error::create(501, "unknown kind", &json);
}

std::string micro_time(std::time_t now) {
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[40];
  if (std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S.000000Z", &parts) == 0) return "";
  return text;
}

}  // namespace

void Record::forget_pod() {
  for (std::string* of_pod : {&pod, &pod_uid, &object, &object_uid}) of_pod->clear();
  kind = Provision::kPod;
  evidence.reset();
  likeness = nullptr;
}

std::optional<Place> Record::place() const {
  if (!measured) return std::nullopt;
  return claim_uid.empty() ? Place::kEmptyDir : Place::kClaim;
}

void write_record(Json& lease, const Record& record, const std::string& holder,
                  std::chrono::seconds duration) {
  Json json = {{"pod", record.pod},
               {"pod_uid", record.pod_uid},
               {"kind", name_of(record.kind)},
               {"object", record.object},
               {"object_uid", record.object_uid},
               {"profile", record.profile},
               {"claim", record.claim},
               {"claim_uid", record.claim_uid},
               {"ahead", record.ahead},
               {"ahead_uid", record.ahead_uid},
               {"users", record.users},
               {"measured", record.measured},
               {"gateway_address", record.gateway_address},
               {"gateway_port", record.gateway_port},
               {"gateway_listeners", record.gateway_listeners},
               {"likeness", record.likeness}};
  if (record.evidence) json["evidence"] = json_of(*record.evidence);
  lease["metadata"]["annotations"][kRecord] = json.dump();
  write_holder(lease, holder, duration);
}

void write_holder(Json& lease, const std::string& holder, std::chrono::seconds duration) {
  const std::string now = micro_time(std::time(nullptr));
  lease["spec"] = {
      {"holderIdentity", holder}, {"leaseDurationSeconds", duration.count()}, {"renewTime", now}};
}

Record read_record(const Json& lease) {
  try {
    const std::string text = lease.at("metadata").at("annotations").at(kRecord);
    const Json json = Json::parse(is_shallow(text) ? text : "");
    Record record{json.at("pod"),
                  json.at("pod_uid"),
                  kind_of(json),
                  json.value("object", ""),
                  json.value("object_uid", ""),
                  json.at("profile"),
                  json.at("claim"),
                  json.at("claim_uid"),
                  json.value("ahead", ""),
                  json.value("ahead_uid", ""),
                  json.value("users", std::vector<std::string>()),
                  json.at("measured"),
                  json.at("gateway_address"),
                  json.at("gateway_port"),
                  json.value("gateway_listeners", ""),
                  {},
                  json.value("likeness", Json())};
    if (json.contains("evidence")) record.evidence = evidence_of(json.at("evidence"));
    return record;
  } catch (const Json::exception&) {
    throw sdk::Error(ISOGATE_INTERNAL,
                     "the record on the sandbox's Lease is damaged: delete the Lease, and its files with it");
  }
}

Hold hold_of(const Json& lease) {
  const Json spec = lease.value("spec", Json::object());
  Hold hold;
  const auto text = [&](const char* key) {
    const auto found = spec.find(key);
    return found != spec.end() && found->is_string() ? found->get<std::string>() : std::string();
  };
  hold.holder = text("holderIdentity");
  const Json metadata = lease.value("metadata", Json::object());
  hold.version =
      metadata.value("uid", "") + "/" + metadata.value("resourceVersion", "") + "/" + text("renewTime");
  const auto lasts = spec.find("leaseDurationSeconds");
  const bool known = lasts != spec.end() && lasts->is_number_integer();
  const int64_t seconds = known ? lasts->get<int64_t>() : kLongestHold.count();
  hold.lasts = std::chrono::seconds(std::clamp<int64_t>(seconds, 0, kLongestHold.count()));
  return hold;
}

}  // namespace isogate::k8s
