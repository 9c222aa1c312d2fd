// Paths of the gateway's host that the configuration names: the sources of mounts and copies.
#pragma once

#include <stdexcept>
#include <string>

#include "lib/fd.h"
#include "plugins/docker/services.h"

namespace isogate::docker {

// It names a path of this host: for the log and for the probe, never for a tenant.
class HostPathError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// O_PATH of a directory or a regular file, reached from the root component by component, none of which is a
// symlink. Throws HostPathError.
Fd open_real(const std::string& path);

// If the Engine listens at a Unix socket of this host and is not known to see other directories: throws
// HostPathError if the source of a mount is no file or directory, or is a symlink or below one. If the
// Engine is known to see this host's directories: also if the source is missing. Otherwise the Engine
// refuses it, and creates none. Also throws what check_no_socket() throws.
void check_mount_source(const Services& services, const Mount& mount);

// Throws HostPathError if the source, after all symlinks, would show a container the socket of an engine
// (engine_sockets.h), or if that is not known. A source that is not on this host is not checked.
void check_no_socket(const Services& services, const std::string& source, const std::string& target);

// The same for one of the gateway's shared directories, whose path was not looked at before.
void check_shared_source(const Services& services, const std::string& source, const std::string& target);

// While a container is created: logs a HostPathError, and throws an error that a tenant may read.
template <typename Work>
auto with_paths_hidden(const Services& services, const std::string& what, Work work) {
  try {
    return work();
  } catch (const HostPathError& error) {
    services.warn(error.what());
    throw sdk::Error(ISOGATE_UNAVAILABLE, what + ": the gateway's log has the reason");
  }
}

}  // namespace isogate::docker
