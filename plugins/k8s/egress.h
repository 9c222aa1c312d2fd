// Whether packets of a sandbox get out, tried from inside by our own program before the first command of a
// tenant: a NetworkPolicy is a wish that a cluster's network may ignore without a word.
#pragma once

#include <string>
#include <vector>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// What must not answer, for `isogate-runner reach`. Empty: nothing is denied.
std::vector<std::string> targets_of(const Config& config, const ClusterAccess& access,
                                    const std::string& node_ip);

// Throws ISOGATE_UNAVAILABLE when something answers for five seconds, and when it could not be tried; where
// allow_unenforced_network is written, warns instead of the former.
void prove_no_way_out(Services& services, sdk::RunnerLink& link, const std::string& node_ip,
                      const sdk::Call& call);

}  // namespace isogate::k8s
