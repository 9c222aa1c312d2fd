// Whether a pod is as requested: controllers and admission may change it. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace isogate::k8s {

// How `pod`, as the API server reports it, is weaker than `asked` (metadata and spec); empty: it is not. It
// may have lower limits, other images, and more fields that decide where a pod runs. A value that is not
// understood counts as weaker.
std::string weaker_than(const nlohmann::json& asked, const nlohmann::json& pod);

// Whether the operator's template may set this field of a pod's spec without allow_weaker_template.
bool may_be_in_template(std::string_view field);

}  // namespace isogate::k8s
