// Reads a tree of this host into a tar archive, unchanged, or not at all. One thread.
//
// The tree is walked by descriptors, one component at a time and without following a symlink, so that a
// concurrent change cannot lead the walk outside. Memory does not grow with the tree. Refused, with a
// HostPathError that names the path: unreadable files; sockets, FIFOs and devices; symlinks that are
// absolute, lead above the top or nowhere; another file system mounted in it; a file that changes while it is
// read; directories more than 100 deep. Symlinks that stay inside are kept unchanged. Hard links become
// separate files; owners, set-id bits, ACLs and extended attributes are not copied.
#pragma once

#include <cstdint>

#include "lib/tar/tar_writer.h"
#include "plugins/docker/config.h"
#include "plugins/docker/files/host_paths.h"

namespace isogate::docker {

// The remaining budget; reduced while a tree is read.
struct CopyRoom {
  uint64_t bytes = 0, entries = 0;
};

// Whose the entries are. `writable`: 0755 and 0644, else 0555 and 0444; files that somebody may run keep
// that.
struct CopyOwner {
  uint32_t uid = 0, gid = 0;
  bool writable = false;
};

bool is_directory(int path_fd);

// `source`: of open_real(). Its entries are named for their places, from the container's root.
void copy_tree(TarWriter& tar, const Copy& copy, int source, const CopyOwner& owner, CopyRoom& room,
               const sdk::Call& call);

}  // namespace isogate::docker
