// A backend as GET /backends and `isogate probe` show it. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/config/config.h"
#include "gateway/front/backends/select.h"

namespace isogate::front {

struct BackendReport {
  const BackendConfig& config;
  const std::optional<ipc::Hello>& hello;
  const std::optional<ipc::Probe>& probe;
  BackendState state;
  const std::string& reason;  // why it is not up
  uint64_t generation = 1, restarts = 0;
  std::string last_failure = {};  // of a call of this tenant
};

// "starting", "down", "quarantined", "available", "degraded", "unavailable".
std::string_view verdict_of(BackendState state, const std::optional<ipc::Probe>& probe);

// One element of `backends`; `verdict` is its own in `decision`.
nlohmann::ordered_json backend_json(const BackendReport& backend, const CandidateVerdict& verdict,
                                    const Decision& decision);
nlohmann::ordered_json policy_json(const Policy& policy);

}  // namespace isogate::front
