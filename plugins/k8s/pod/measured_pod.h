// What ties a measurement to one container of one pod and to the network around it, and whether all of it
// still is what it was. What was measured holds for nothing else: a container that was restarted under the
// same UID, as after a patch of its image, or a pod that other policies select. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/common/proof.h"

namespace isogate::k8s {

// Of a pod that runs: labels, owners, and of each container image, id and restarts; null in place of what is
// not understood. For Record::likeness.
nlohmann::json likeness_of(const nlohmann::json& pod);

// In what `pod` is no longer that; empty: in nothing. What is not understood differs.
std::string what_differs(const nlohmann::json& likeness, const nlohmann::json& pod);

// In what the NetworkPolicy `is` lets more through than `asked`, or is for other pods; empty: in nothing.
std::string what_policy_lacks(const nlohmann::json& asked, const nlohmann::json& is);

// The gateway's listeners that a pod could reach at all: those of other loopbacks are none. Sorted, with one
// space between, for Record::proof.
std::string tried_of(const Gateway& gateway);

// Whether all of `asked` is among `tried`, both of tried_of().
bool covers(const std::string& tried, const std::string& asked);

}  // namespace isogate::k8s
