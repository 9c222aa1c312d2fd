// The bridge network of one sandbox, where the configuration gives it one: nobody else is on it. Throws
// sdk::Error.
#pragma once

#include <string>

#include "plugins/docker/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

// Its name. One that is there and not recorded as made by us is refused, never used. `directory`: the
// sandbox's on this host.
std::string prepare_network(Services& services, const Owner& owner, int directory, const sdk::Call& call);
// Gone already is OK.
void remove_network(Services& services, const Owner& owner, int directory, const sdk::Call& call);

}  // namespace isogate::docker
