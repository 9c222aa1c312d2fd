// Ties a measurement to one container of one pod and to the network around it, and checks whether these
// are unchanged. A measurement is valid for nothing else: not for a container that was restarted under the
// same UID, as after a patch of its image, nor for a pod that other policies select. Pure functions.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/common/proof.h"

namespace isogate::k8s {

// Of a running pod: labels, owners, and of each container image, id and restarts; null in place of values
// that are not understood. For Record::likeness.
nlohmann::json likeness_of(const nlohmann::json& pod);

// How `pod` differs from that; empty: it does not. A value that is not understood differs.
std::string what_differs(const nlohmann::json& likeness, const nlohmann::json& pod);

// How the NetworkPolicy `is` lets more through than `asked`, or is for other pods; empty: it does not.
std::string what_policy_lacks(const nlohmann::json& asked, const nlohmann::json& is);

// The gateway's listeners that a pod could reach at all: not those on another loopback. Sorted, with one
// space between, for Record::proof.
std::string tried_of(const GatewayAddresses& gateway);

// Whether all of `asked` is among `tried`, both of tried_of().
bool covers(const std::string& tried, const std::string& asked);

}  // namespace isogate::k8s
