// Whether a pod is what was asked for: controllers and admission change pods on their way. A pure function.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace isogate::k8s {

// In what `pod`, as the API server tells it, is weaker than `asked` (metadata and spec); empty: in nothing.
// It may have lower limits, other images, and more of what says where a pod runs. What is not understood
// counts as weaker.
std::string weaker_than(const nlohmann::json& asked, const nlohmann::json& pod);

}  // namespace isogate::k8s
