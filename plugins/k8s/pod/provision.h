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
#include <vector>

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

// In what `is`, a pod that `kind` made, is weaker than `pod`, a body of pod_of(), asked for; empty: in
// nothing.
std::string why_weaker(const Config& config, const nlohmann::json& pod, const nlohmann::json& is,
                       Provision kind);

struct PodName {
  std::string name, uid;
};

// A record is only what somebody wrote: nothing that it names is read, used or removed unless its owner
// references lead to the sandbox's Lease.
//
// The uid of the Lease that what is named has to belong to: the sandbox's own, or the one with which its
// first pod was made ahead, while that one is the sandbox's. Empty: that one is gone, and all of it with it.
std::string owner_of(Services& services, const Record& record, const std::string& lease_uid,
                     const Budget& budget);

// The recorded pod, if it is that very one and belongs to `owner`, of owner_of(). Nothing: it is gone, or is
// another's.
std::optional<nlohmann::json> own_pod(Services& services, const Record& record, const std::string& owner,
                                      const Budget& budget);

// Removes what the record names, if it still is that very object and belongs to `owner`, and each pod of it.
// Gone already is fine. The pods that may still run, to be waited for.
std::vector<PodName> remove_pods(Services& services, const Record& record, const std::string& sandbox_id,
                                 const std::string& owner, const Budget& budget);

// Removes what is left of a sandbox whose Lease, `lease_uid`, is gone. The pods that may still run.
std::vector<PodName> remove_leftovers(Services& services, const std::string& sandbox_id,
                                      const std::string& lease_uid, const Budget& budget);

// Removes the volume claim and the NetworkPolicy, likewise.
void remove_parts(Services& services, const Record& record, const std::string& sandbox_id,
                  const std::string& owner, const Budget& budget);

}  // namespace isogate::k8s
