// Volumes of the Engine, for where it does not see this host's directories: one for each workspace, and one
// with the runner in it for all of a backend's containers. Throws sdk::Error.
#pragma once

#include <string>

#include "plugins/docker/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

// Its name tells the runner's content, so that another build has another one.
std::string runner_volume(const Services& services);

// Makes both where they are missing, and gives the workspace to its user. A volume of that name without our
// labels is refused.
// `directory`: the sandbox's on this host, where it is recorded that we made it.
void prepare_volumes(Services& services, const Parts& parts, int directory, const sdk::Call& call);

// Whether the workspace of the sandbox with that directory is a volume.
bool is_volume(int directory);
// Gone already is OK.
void remove_workspace_volume(Services& services, const Owner& owner, int directory, const sdk::Call& call);

}  // namespace isogate::docker
