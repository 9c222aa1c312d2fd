// The operator's additions to each pod. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace isogate::k8s {

// Throws ISOGATE_INVALID_ARGUMENT for a field or annotation that could weaken a pod, unless `weaker`, and
// always for this backend's own labels and annotations.
void check_template(const nlohmann::json& addition, bool weaker);

// Lists (containers, volumes, …) are merged by their elements' `name`, other lists are replaced, objects
// are merged; null removes.
void overlay(nlohmann::json& pod, const nlohmann::json& addition);

}  // namespace isogate::k8s
