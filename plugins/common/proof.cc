#include "plugins/common/proof.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "isogate/backend.hpp"
#include "lib/limits.h"

namespace isogate {
namespace {

// One list of fields serves both directions.
template <typename Evidence, typename Each>
void each_field(Evidence& evidence, Each each) {
  each("flags", evidence.flags);
  each("uid", evidence.uid);
  each("gid", evidence.gid);
  each("no_new_privs", evidence.no_new_privs);
  each("seccomp_mode", evidence.seccomp_mode);
  each("cap_inheritable", evidence.cap_inheritable);
  each("cap_permitted", evidence.cap_permitted);
  each("cap_effective", evidence.cap_effective);
  each("cap_bounding", evidence.cap_bounding);
  each("cap_ambient", evidence.cap_ambient);
  each("ns_mnt", evidence.ns_mnt);
  each("ns_pid", evidence.ns_pid);
  each("ns_net", evidence.ns_net);
  each("ns_ipc", evidence.ns_ipc);
  each("ns_uts", evidence.ns_uts);
  each("ns_user", evidence.ns_user);
  each("ns_cgroup", evidence.ns_cgroup);
  each("visible_processes", evidence.visible_processes);
}

nlohmann::json evidence_to_json(const isogate_evidence& evidence) {
  auto json = nlohmann::json::object();
  each_field(evidence, [&](const char* name, auto value) { json[name] = value; });
  const Limits limits = Limits::of(evidence);
  for (const LimitKind& kind : kLimitKinds) json[kind.name] = limits.get(kind.id);
  return json;
}

std::optional<isogate_evidence> evidence_from_json(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  isogate_evidence evidence{};
  evidence.struct_size = sizeof evidence;
  bool fits = true;
  const auto read = [&](const char* name, auto& value) {
    using Number = std::remove_reference_t<decltype(value)>;
    const auto found = json.find(name);
    fits = fits && found != json.end() && found->is_number_unsigned() &&
           found->template get<uint64_t>() <= std::numeric_limits<Number>::max();
    if (fits) found->get_to(value);
  };
  each_field(evidence, read);
  Limits limits;
  for (size_t row = 0; row < kLimitKindCount; ++row) read(kLimitKinds[row].name, limits.at_row(row));
  limits.put(evidence);
  return fits ? std::optional(evidence) : std::nullopt;
}

}  // namespace

GatewayAddresses GatewayAddresses::of(const isogate_evidence_request& request) {
  return {std::string(sdk::view(request.gateway_address)), request.gateway_port,
          std::string(sdk::view(request.gateway_listeners))};
}

isogate_evidence_request GatewayAddresses::request() const {
  return {sizeof(isogate_evidence_request), port, sdk::str(address), sdk::str(listeners)};
}

bool isolates_alike(const isogate_evidence& now, const isogate_evidence& before) {
  const auto what_stays = [](const isogate_evidence& e) {
    return std::tie(e.flags, e.uid, e.gid, e.no_new_privs, e.seccomp_mode, e.cap_inheritable, e.cap_permitted,
                    e.cap_effective, e.cap_bounding, e.cap_ambient);
  };
  return what_stays(now) == what_stays(before) && Limits::of(now).within(Limits::of(before));
}

void write_proof(nlohmann::json& record, const std::optional<Proof>& proof) {
  const GatewayAddresses gateway = proof ? proof->gateway : GatewayAddresses();
  record["gateway_address"] = gateway.address;
  record["gateway_port"] = gateway.port;
  record["gateway_listeners"] = gateway.listeners;
  if (proof) record["evidence"] = evidence_to_json(proof->evidence);
}

bool read_proof(const nlohmann::json& record, std::optional<Proof>& proof) {
  GatewayAddresses gateway{record.at("gateway_address"), 0, record.at("gateway_listeners")};
  const auto& port = record.at("gateway_port");
  if (!port.is_number_unsigned() || port.get<uint64_t>() > UINT32_MAX) return false;
  gateway.port = port.get<uint32_t>();
  const auto found = record.find("evidence");
  if (found == record.end()) return true;
  const auto evidence = evidence_from_json(*found);
  if (evidence) proof = Proof{*evidence, std::move(gateway)};
  return evidence.has_value();
}

}  // namespace isogate
