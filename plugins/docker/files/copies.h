// What the configuration copies into a container between its making and its start, over the Engine's API: the
// sources are this host's, wherever the Engine is.
//
// Each has an unnamed, labelled volume that is removed with the container. For a directory it is the target,
// and hides the image's content there; for a file it is the directory around the target, and begins with the
// image's content there. Files that programs may not write belong to root. Into a container with a read-only
// root an Engine unpacks only into volumes, and does not set a volume's own owner: so another container,
// which is never started, has the same volumes meanwhile. A copy never becomes a mount.
#pragma once

#include <string>
#include <vector>

#include "plugins/docker/container/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

// podman gives a new volume to the user of the container that mounts it first: the tenant could change the
// copy.
inline constexpr const char* kNoCopies =
    "podman gives volumes to the sandbox's user, also what is copied read-only: `copies` needs a Docker "
    "Engine";
inline constexpr const char* kOnlyWritableCopies =
    "on a rootless Engine a program is the owner of what is copied: say `writable: true` of all `copies`, or "
    "use mounts";

// Why such an Engine cannot have the configured copies; empty: it can.
std::string why_no_copies(const Config& config, bool podman, bool rootless);

// The paths that must be volumes. Throws HostPathError for a source that is missing, a symlink, or no
// file or directory, and for a file whose directory cannot be a volume.
std::vector<CopyPlace> places_of_copies(const Config& config);

// Into container `id`, recorded as `name`. Throws sdk::Error without a path of this host; the log has it.
void fill_copies(Services& services, const Parts& parts, const std::string& name, const std::string& id,
                 const sdk::Call& call);

}  // namespace isogate::docker
