// The record on the Lease of one sandbox: who is at work on it, and which pod it is. Only holders of the
// backend's credentials write it, no tenant; so a pod is adopted by what is recorded here, never by a label
// that somebody else could have written too. Values.
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plugins/common/proof.h"
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
  // Of this pod, before the first command of a tenant. Its listeners: tried_of() (measured_pod.h).
  std::optional<Proof> proof;
  nlohmann::json likeness;  // what it was measured as: likeness_of() (measured_pod.h)

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

// Who is at work on it, by the Lease; empty: nobody. Renewals knows by `version` whether
// that one is still there. What is not understood is held by somebody, for the longest time.
struct Hold {
  std::string holder, version;
  std::chrono::seconds lasts{0};
};
Hold hold_of(const nlohmann::json& lease);

}  // namespace isogate::k8s
