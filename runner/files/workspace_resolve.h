// From a directory descriptor and a path to a descriptor, without ever leaving the tree.
//
// By openat2(2), which refuses every absolute symlink. If one leads below the path at which the sandbox's
// own programs see the tree, the components are walked one by one, each with openat2 and none through a
// symlink. Without openat2 (in the kernel or an outer sandbox), they are walked with O_NOFOLLOW, and
// symlinks are refused. Functions here return a descriptor or -errno. Any thread.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "lib/fd.h"

namespace isogate {

struct Tree {
  int fd = -1;           // O_PATH directory; borrowed
  bool confined = true;  // false: a root, this host's or a sandbox's, where links may lead anywhere below it
  bool read_only = false;  // a shared directory
  const char* name = "the workspace";
  std::string_view own_path = {};  // of a confined tree: where the sandbox sees it; borrowed. Empty: nowhere
};

bool have_openat2();

// `flags` as openat(2), O_CLOEXEC is added. `follow`: symlinks on the way, and in the last place unless
// O_NOFOLLOW; false refuses any with ELOOP.
int resolve(const Tree& tree, const std::string& path, int flags, bool follow = true);

// Whether procfs has it of a process or of a device, or of the keys of whoever reads it: the kernel shows
// there what this process may see, not what a program of the sandbox may. Anything that cannot be examined
// counts. resolve() refuses these in a tree that is not confined, with ESRCH.
bool is_of_a_process(int file);

// What a path names, after any symlinks in its last component: a name in a directory, which may exist or
// not.
struct Leaf {
  Fd parent;         // O_PATH
  std::string name;  // "." if the path names a directory by `.`, `..` or a trailing slash
  int links = 0;     // how many were followed in the last place
};
// 0 or -errno; `links` is set in both cases. The symlinks stay unchanged, and are followed by name: each
// target is resolved from the root of the tree. Magic links (proc(5)) and loops are ELOOP.
int resolve_leaf(const Tree& tree, const std::string& path, Leaf& leaf);

// One component below `dir` that is no symlink and no other mount.
int resolve_child(int dir, const std::string& name, int flags);

// The walk without openat2.
int resolve_by_walking(const Tree& tree, const std::string& path, int flags, bool follow);

// Opens the very inode behind an O_PATH descriptor again, through a procfs whose magic was checked.
int reopen(int path_fd, int flags);

// chmod(2) of what an O_PATH descriptor refers to; 0 or -errno.
int chmod_by_fd(int path_fd, uint32_t mode);

// ISOGATE_RESOURCE_EXHAUSTED with EBUSY: a program of the sandbox keeps the file busy now, perhaps only for
// a moment.
Error busy_error(std::string message);

// inotify_add_watch(2) of what a descriptor refers to; its number, or -errno.
int watch_by_fd(int inotify, int fd, uint32_t mask);

// An error for `attempt` ("cannot read `a/b`") that names no host path; `negative` is what resolve answered.
Error resolve_error(const std::string& attempt, const Tree& tree, int negative);

}  // namespace isogate
