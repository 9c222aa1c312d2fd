// From a directory descriptor and a path to a descriptor, without ever leaving the tree.
//
// openat2(2) does it; where the kernel or an outer sandbox has none, components are walked one by one
// with O_NOFOLLOW, and symlinks are then refused. Functions here answer a descriptor or -errno. Any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

#include "lib/fd.h"

namespace isogate {

struct Tree {
  int fd = -1;           // O_PATH directory; borrowed
  bool confined = true;  // false: a root, this host's or a sandbox's, where links may lead anywhere below it
  bool read_only = false;  // a shared directory
  const char* name = "the workspace";
};

bool have_openat2();

// `flags` as openat(2), O_CLOEXEC is added. `follow`: symlinks on the way, and in the last place unless
// O_NOFOLLOW; false refuses any with ELOOP.
int resolve(const Tree& tree, const std::string& path, int flags, bool follow = true);

// One component below `dir`, which is no symlink and no other mount.
int resolve_child(int dir, const std::string& name, int flags);

// The walk without openat2.
int resolve_by_walking(const Tree& tree, const std::string& path, int flags, bool follow);

// Opens the very inode behind an O_PATH descriptor again, through a procfs whose magic was checked.
int reopen(int path_fd, int flags);

// chmod(2) of what an O_PATH descriptor refers to; 0 or -errno.
int chmod_by_fd(int path_fd, uint32_t mode);

// ISOGATE_RESOURCE_EXHAUSTED with EBUSY: what a program of the sandbox does to the file now, and may be over
// soon.
Error busy_error(std::string message);

// An error for `attempt` ("cannot read `a/b`") that names no host path; `negative` is what resolve answered.
Error resolve_error(const std::string& attempt, const Tree& tree, int negative);

}  // namespace isogate
