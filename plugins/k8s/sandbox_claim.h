// Pods of a SandboxWarmPool (sigs.k8s.io/agent-sandbox), of which a SandboxClaim takes one: whoever runs the
// cluster says in its SandboxTemplate what they are, and this backend uses none that is weaker than what it
// would have made itself. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

inline constexpr const char* kAgentsGroup = "agents.x-k8s.io";
inline constexpr const char* kAgentsExtensions = "extensions.agents.x-k8s.io/v1beta1";

// The newest version of `agents.x-k8s.io` that the cluster serves and this backend knows.
std::string agents_version(Services& services, const Budget& budget);

// The claim for what would be `pod`, a body of pod_of(): its name, owner and labels. Pure.
nlohmann::json sandbox_claim_of(const Config& config, const nlohmann::json& pod);

// The pod that the recorded claim has got, by uids from owner to owner, once it has the labels of `pod`.
std::optional<nlohmann::json> pod_of_claim(Services& services, const Record& record,
                                           const nlohmann::json& pod, const Budget& budget);

// Why the pool's pods will not do for `pod`; empty: they will.
std::string why_pool_unfit(Services& services, const nlohmann::json& pod, const Budget& budget);

}  // namespace isogate::k8s
