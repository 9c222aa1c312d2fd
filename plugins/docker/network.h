// The bridge network of one sandbox, where the configuration gives it one: it and its companions are on it,
// nobody else. An internal one has no way out: the Engine's firewall drops what leaves the bridge, and the
// machine has no address on it (inhibit_ipv4), for with one it could be reached at every address it has.
// podman knows no such network. Throws sdk::Error.
#pragma once

#include <string>

#include "plugins/docker/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

inline constexpr const char* kNoInternal =
    "podman's internal networks do not keep its machine apart: `network: internal` needs a Docker Engine";

// Its id. One that is there and not recorded as made by us is refused, never used; one of other settings is
// recreated. `directory`: the sandbox's on this host.
std::string prepare_network(Services& services, const Owner& owner, int directory, const sdk::Call& call);
// Gone already is OK.
void remove_network(Services& services, const Owner& owner, int directory, const sdk::Call& call);

}  // namespace isogate::docker
