// Pods of a SandboxWarmPool (sigs.k8s.io/agent-sandbox), of which a SandboxClaim takes one. The cluster's
// operator defines them in a SandboxTemplate, and this backend uses none that is weaker than a pod that it
// would create. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

inline constexpr const char* kAgentsExtensions = "extensions.agents.x-k8s.io/v1beta1";

// The claim in place of `pod`, a body of pod_of(), with its name, owner and labels. Pure.
nlohmann::json sandbox_claim_of(const Config& config, const nlohmann::json& pod);

// The pod that the recorded claim has got, by uids from owner to owner, once it has the labels of `pod`.
std::optional<nlohmann::json> pod_of_claim(Services& services, const Record& record,
                                           const nlohmann::json& pod, const Budget& budget);

// Which container of `pod` has another image than requested: others wrote the pod, and the measuring program
// comes in an image. Empty: none.
std::string other_image(const nlohmann::json& asked, const nlohmann::json& pod);

// Why the pool's pods do not suffice for `pod`; empty: they do. By the current template and policy.
std::string why_pool_unfit(Services& services, const nlohmann::json& pod, const Budget& budget);

}  // namespace isogate::k8s
