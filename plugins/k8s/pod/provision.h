// Creates the pod of a sandbox: directly, or by the controller of an object that this backend creates: a
// Job, or a Sandbox or SandboxClaim (agents.x-k8s.io, sigs.k8s.io/agent-sandbox). The Lease owns that
// object, and the object owns the pod, by uid. Any thread.
//
// The record names the object before it is created, and is written to the Lease: so the successor of a
// killed gateway finds it.
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

// The body to create for `pod`, a body of pod_of(): the pod itself, or an object of its name.
// Pure.
nlohmann::json maker_of(const Config& config, const nlohmann::json& pod);

// Why the cluster refuses the object for `pod`, by a dry run; empty: it accepts it.
std::string why_not_taken(Services& services, const nlohmann::json& pod, const Budget& budget);

// Creates the object that the record names, and enters its uid in the record.
void begin_pod(Services& services, const nlohmann::json& pod, Record& record, const Budget& budget);

// Waits until the created object has a pod that has not ended, and enters its name and uid in the
// record. Throws ISOGATE_UNAVAILABLE when there is none within `most`, and when it is weaker than
// requested.
void find_pod(Services& services, const nlohmann::json& pod, Record& record, const sdk::Call& call,
              std::chrono::milliseconds most);

// How `is`, a pod that `kind` created, is weaker than `pod`, a body of pod_of(), requested; empty: it
// is not.
std::string why_weaker(const Config& config, const nlohmann::json& pod, const nlohmann::json& is,
                       Provision kind);

struct PodName {
  std::string name, uid;
};

// A record alone proves nothing: an object that it names is read, used or removed only if its owner
// references lead to the sandbox's Lease.
//
// The uid of the Lease that must own the named objects: the sandbox's own, or the one with which its first
// pod was created in advance, while that belongs to the sandbox. Empty: that Lease is deleted, and
// everything of it.
std::string owner_of(Services& services, const Record& record, const std::string& lease_uid,
                     const Budget& budget);

// The recorded pod, if it has the recorded uid and belongs to `owner`, of owner_of(). Nothing: it is
// deleted, or has another owner.
std::optional<nlohmann::json> own_pod(Services& services, const Record& record, const std::string& owner,
                                      const Budget& budget);

// Removes the object that the record names, if it still has that uid and belongs to `owner`, and each of its
// pods. Already deleted is OK. Returns the pods that may still run; the caller waits for them.
std::vector<PodName> remove_pods(Services& services, const Record& record, const std::string& sandbox_id,
                                 const std::string& owner, const Budget& budget);

// Removes what is left of a sandbox whose Lease, `lease_uid`, is deleted. Returns the pods that may
// still run.
std::vector<PodName> remove_leftovers(Services& services, const std::string& sandbox_id,
                                      const std::string& lease_uid, const Budget& budget);

// Also removes the volume claim and the NetworkPolicy.
void remove_parts(Services& services, const Record& record, const std::string& sandbox_id,
                  const std::string& owner, const Budget& budget);

}  // namespace isogate::k8s
