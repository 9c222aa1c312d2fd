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

inline constexpr const char* kAgentsExtensions = "extensions.agents.x-k8s.io/v1beta1";

// The claim for what would be `pod`, a body of pod_of(): its name, owner and labels. Pure.
nlohmann::json sandbox_claim_of(const Config& config, const nlohmann::json& pod);

// The pod that the recorded claim has got, by uids from owner to owner, once it has the labels of `pod`.
std::optional<nlohmann::json> pod_of_claim(Services& services, const Record& record,
                                           const nlohmann::json& pod, const Budget& budget);

// Whether a container of `pod` is of another image than is asked for: nobody here wrote it, and what measures
// comes in one. In words; empty: none is.
std::string other_image(const nlohmann::json& asked, const nlohmann::json& pod);

// Why the pool's pods will not do for `pod`; empty: they will. By the template and the policy as they are
// now.
std::string why_pool_unfit(Services& services, const nlohmann::json& pod, const Budget& budget);

}  // namespace isogate::k8s
