// The measurement of a sandbox before its first command, and its form in the sandbox's record. Values.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "isogate/backend.h"

namespace isogate {

// The addresses that a sandbox tries to reach when it is measured: as in
// isogate_evidence_request.
struct GatewayAddresses {
  std::string address;
  uint32_t port = 0;
  std::string listeners;

  static GatewayAddresses of(const isogate_evidence_request& request);
  [[nodiscard]] isogate_evidence_request request() const;  // borrows from this
  bool operator==(const GatewayAddresses&) const = default;
};

struct Proof {
  isogate_evidence evidence{};
  GatewayAddresses gateway;
};

// Whether `now` has the same values that every container or pod of a sandbox must share, and no weaker
// limits. Namespaces differ.
bool isolates_alike(const isogate_evidence& now, const isogate_evidence& before);

// Adds it to a record. None: nothing was measured.
void write_proof(nlohmann::json& record, const std::optional<Proof>& proof);
// False, or a nlohmann::json::exception: something is missing or does not fit, so the record is damaged.
[[nodiscard]] bool read_proof(const nlohmann::json& record, std::optional<Proof>& proof);

}  // namespace isogate
