// The record on the Lease of one sandbox: which gateway works on it, and its pod. Only holders of the
// backend's credentials write it, no tenant. So a pod is re-attached by this record, never by a label,
// which somebody else could also write. Values.
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
  std::string object;              // the name of the object that creates the pod, likewise; empty for kPod
  std::string object_uid;          // empty: it was about to be made
  std::string profile;             // profile_digest() of what it was made of
  std::string claim;               // the name of its PersistentVolumeClaim
  std::string claim_uid;           // empty: none was made yet
  std::string ahead, ahead_uid;    // the Lease of a pod created in advance; empty: it was not
  std::vector<std::string> users;  // gateways that have it open, or had when they were killed
  std::string image;               // its own; empty: the configuration's
  bool measured = false;           // some pod of it was, so a tenant may have used it
  // Of this pod, before the first command of a tenant. Its listeners: tried_of() (measured_pod.h).
  std::optional<Proof> proof;
  nlohmann::json likeness;  // what it was measured as: likeness_of() (measured_pod.h)

  void forget_pod();  // and everything that belongs only to it
  // Where a tenant's files are, whatever the current configuration; nothing: no tenant has used
  // it.
  [[nodiscard]] std::optional<Place> place() const;
};

// Puts record and holder into a Lease's body. `holder` empty: no gateway works on it.
void write_record(nlohmann::json& lease, const Record& record, const std::string& holder,
                  std::chrono::seconds duration);

// The latter alone.
void write_holder(nlohmann::json& lease, const std::string& holder, std::chrono::seconds duration);

// Throws ISOGATE_INTERNAL for a damaged one.
Record read_record(const nlohmann::json& lease);

// Which gateway works on it, by the Lease; empty: none. Renewals knows by `version` whether that
// gateway still lives. A Lease that is not understood counts as held, for the longest time.
struct Hold {
  std::string holder, version;
  std::chrono::seconds lasts{0};
};
Hold hold_of(const nlohmann::json& lease);

}  // namespace isogate::k8s
