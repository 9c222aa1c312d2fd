// Volumes of an Engine that does not see this host's directories: one for each workspace, and one with the
// runner in it for all of a backend's containers. Throws sdk::Error.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "lib/tar/tar_writer.h"
#include "plugins/docker/container/profile.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

// Its name depends on the runner's content, so that another build has another volume.
std::string runner_volume(const Services& services);

// Makes both where they are missing, and gives the workspace to its user. A volume of that name without our
// labels is refused.
// `directory`: the sandbox's on this host, where it is recorded that we made it.
void prepare_volumes(Services& services, const Parts& parts, int directory, const sdk::Call& call);

// Whether the workspace of the sandbox with that directory is a volume. Throws if that is not known.
bool is_volume(int directory);
// Gone already is OK. Volumes of copies are removed with their container, unless somebody else removed
// that. One in use belongs to an orphan.
void remove_copies(Services& services, const Owner& owner, const sdk::Call& call);
void remove_workspace_volume(Services& services, const Owner& owner, int directory, const sdk::Call& call);

using Filler = std::function<void(TarWriter&)>;

// Mounts volumes (name, target) in a container that is never started, named for `name`, and unpacks in
// directory `place` of it what `fill` writes.
void fill_volumes(Services& services, const Owner& owner, const std::string& name,
                  const std::vector<std::pair<std::string, std::string>>& volumes, const std::string& place,
                  const Filler& fill, const Budget& budget);
// Does `work` with a container of `body` that is never started and has no network, then removes it with its
// anonymous volumes.
void with_filler(Services& services, const Owner& owner, const std::string& name, Json body,
                 const std::string& platform, const Budget& budget,
                 const std::function<void(const std::string& id)>& work);
// Removes what a crash left of that. False: there is none of ours.
bool remove_filler(Services& services, const Owner& owner, const std::string& name, const Budget& budget);

}  // namespace isogate::docker
