// Paths of the gateway's host that the configuration names: what is mounted and what is copied.
#pragma once

#include <stdexcept>
#include <string>

#include "plugins/docker/services.h"
#include "runner/fd.h"

namespace isogate::docker {

// It names a path of this host: for the log and for the probe, never for a tenant.
class HostPathError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// O_PATH of a directory or a regular file, reached from the root component by component, none of which is a
// symlink. Throws HostPathError.
Fd open_real(const std::string& path);

// Throws HostPathError where the source of a mount is no file or directory, or a symlink or below one, and
// the Engine listens at a Unix socket of this host and is not known to see other directories; where it is
// known to see these, also for a source that is missing. Else that is the Engine's to refuse: it makes none.
void check_mount_source(const Services& services, const Mount& mount);

// For container making: HostPathError goes to the log, and out of it what a tenant may read.
template <typename Work>
auto with_paths_hidden(const Services& services, const std::string& what, Work work) {
  try {
    return work();
  } catch (const HostPathError& error) {
    services.warn(error.what());
    throw sdk::Error(ISOGATE_UNAVAILABLE, what + ": the gateway's log says why");
  }
}

}  // namespace isogate::docker
