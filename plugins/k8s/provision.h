// How the pod of a sandbox comes to be: made by this backend itself, or by the controller of an object that
// it makes: a Job, or a Sandbox or SandboxClaim (agents.x-k8s.io, sigs.k8s.io/agent-sandbox). That object
// belongs to the sandbox's Lease, and the pod to it, by uid. Any thread.
//
// What will be made is named in the record first, and the record is written to the Lease: so whoever comes
// after a gateway that was killed in between finds it.
#pragma once

#include <chrono>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// In the record alone. `name` holds 32 random bits.
void name_pod(Record& record, Provision kind, const std::string& name);

// What is created for `pod`, a body of pod_of(): itself, or an object of its name. Pure.
nlohmann::json maker_of(const Config& config, const nlohmann::json& pod);

// Why the cluster does not take what is created for `pod`, tried without making it; empty: it does.
std::string why_not_taken(Services& services, const nlohmann::json& pod, const Budget& budget);

// Creates what the record names. Its uid is in the record then.
void begin_pod(Services& services, const nlohmann::json& pod, Record& record, const Budget& budget);

// Until what was created has a pod that has not ended; its name and uid are in the record then. Throws
// ISOGATE_UNAVAILABLE when there is none within `most`, and when it is weaker than what was asked for.
void find_pod(Services& services, const nlohmann::json& pod, Record& record, const sdk::Call& call,
              std::chrono::milliseconds most);

struct PodName {
  std::string name, uid;
};

// Removes what the record names, if it still is that very object, and each pod of it. Gone already is fine.
// The recorded pod where it may still run, to be waited for: a tenant has been in no other.
std::optional<PodName> remove_pods(Services& services, const Record& record, const std::string& sandbox_id,
                                   const std::string& lease_uid, const Budget& budget);

}  // namespace isogate::k8s
