// The bridge network of one sandbox, if the configuration gives it one: only the sandbox and its companions
// are on it. An internal one has no way out: the Engine's firewall drops packets that leave the bridge, and
// the machine has no address on it (inhibit_ipv4). With one, every address of the machine could be reached.
// podman has no such network. Throws sdk::Error.
#pragma once

#include <string>

#include "plugins/docker/container/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

inline constexpr const char* kNoInternal =
    "podman's internal networks do not keep its machine apart: `network: internal` needs a Docker Engine";

// Its id. An existing network that is not recorded as ours is refused, never used; one with other settings
// is recreated. `directory`: the sandbox's on this host.
std::string prepare_network(Services& services, const Owner& owner, int directory, const sdk::Call& call);
// Gone already is OK.
void remove_network(Services& services, const Owner& owner, int directory, const sdk::Call& call);

}  // namespace isogate::docker
