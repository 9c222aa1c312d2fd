#include "gateway/front/backends/backend_report.h"

#include <nlohmann/json.hpp>

namespace isogate::front {
namespace {

std::string reason_of(const CandidateVerdict& verdict, bool chosen, const std::string& last_failure) {
  if (!verdict.eligible) return verdict.reason;
  const std::string reason = chosen ? "first eligible in the configured order"
                                    : "eligible, but another comes first in the configured order";
  return last_failure.empty() ? reason : reason + "; but the last call failed: " + last_failure;
}

}  // namespace

std::string_view verdict_of(BackendState state, const std::optional<ipc::Probe>& probe) {
  switch (state) {
    case BackendState::kStarting:
      return "starting";
    case BackendState::kDown:
    case BackendState::kFailed:
      return "down";
    case BackendState::kQuarantined:
      return "quarantined";
    case BackendState::kUp:
      break;
  }
  return probe ? verdict_name(probe->verdict) : "starting";
}

nlohmann::ordered_json backend_json(const BackendReport& backend, const CandidateVerdict& verdict,
                                    const Decision& decision) {
  const auto& [config, hello, probe, state, reason, generation, restarts, last_failure] = backend;
  const bool chosen = decision.chosen == config.name;
  const uint32_t isolation = probe ? probe->isolation : hello ? hello->isolation : UINT32_MAX;
  const uint32_t locality = probe ? probe->locality : hello ? hello->locality : 0;
  return {{"name", config.name},
          {"plugin", hello ? hello->plugin_id : config.plugin},
          {"version", hello ? hello->plugin_version : ""},
          {"verdict", verdict_of(state, probe)},
          {"isolation", isolation_name(isolation)},
          {"locality", locality_name(locality)},
          {"capabilities", capability_names(probe ? probe->capabilities : 0)},
          {"eligible", verdict.eligible},
          {"chosen", chosen},
          {"reason", reason_of(verdict, chosen, last_failure)},
          {"detail", probe ? probe->detail : reason},
          {"generation", generation},
          {"restarts", restarts}};
}

nlohmann::ordered_json policy_json(const Policy& policy) {
  return {{"require_remote", policy.require_remote},
          {"min_isolation", isolation_name(policy.min_isolation)},
          {"allow_unisolated", policy.allow_unisolated}};
}

}  // namespace isogate::front
