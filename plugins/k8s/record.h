// What the Lease of one sandbox says: who is at work on it, and which pod it is. Only holders of the
// backend's credentials write it, no tenant; so a pod is adopted by what is recorded here, never by a label
// that somebody else could have written too. Values.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "isogate/backend.h"
#include "plugins/k8s/config.h"

namespace isogate::k8s {

struct Record {
  std::string pod;      // its name, which holds 32 random bits; empty: there is none, or it is not known
  std::string pod_uid;  // empty: it was about to be made
  Provision kind = Provision::kPod;
  std::string object;              // the name of what makes the pod, likewise; empty for kPod
  std::string object_uid;          // empty: it was about to be made
  std::string profile;             // profile_digest() of what it was made of
  std::string claim;               // the name of its PersistentVolumeClaim
  std::string claim_uid;           // empty: none was made yet
  std::string ahead, ahead_uid;    // the Lease with which its first pod was made ahead; empty: it was not
  std::vector<std::string> users;  // gateways that have it open, or had when they were killed
  bool measured = false;           // some pod of it was, so a tenant may have been here
  std::string gateway_address;     // what the measurement tried to reach
  uint32_t gateway_port = 0;
  std::string gateway_listeners;             // likewise: tried_of() (measured_pod.h)
  std::optional<isogate_evidence> evidence;  // of this pod, before the first command of a tenant
  nlohmann::json likeness;                   // what it was measured as: likeness_of() (measured_pod.h)

  void forget_pod();  // and all that is of it alone
  // Where a tenant's files are, whatever is configured now; nothing: no tenant was here.
  [[nodiscard]] std::optional<Place> place() const;
};

// Puts record and holder into a Lease's body. `holder` empty: nobody is at work.
void write_record(nlohmann::json& lease, const Record& record, const std::string& holder,
                  std::chrono::seconds duration);

// The latter alone.
void write_holder(nlohmann::json& lease, const std::string& holder, std::chrono::seconds duration);

// Throws ISOGATE_INTERNAL for a damaged one.
Record read_record(const nlohmann::json& lease);

// Who is at work on it, as the Lease says; empty: nobody. Whether that one is still there is for Renewals to
// tell, by `version`.
struct Hold {
  std::string holder, version;
  std::chrono::seconds lasts{0};
};
Hold hold_of(const nlohmann::json& lease);

}  // namespace isogate::k8s
