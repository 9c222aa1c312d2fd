// The few mount calls that templates are built with, on descriptors; see open_tree(2), move_mount(2),
// mount_setattr(2) (Linux 5.12). In the namespaces of the caller: run_apart().
#pragma once

#include <string>

#include "lib/fd.h"

namespace isogate::ns {

enum class Access { kReadOnly, kReadWrite, kDevice };  // kDevice: read-only, and its device nodes work

// A detached copy of the mount that `fd` is in, from `fd` downwards, with `recursive` including the
// mounts below it. Private, nosuid, nodev; `what` is for the message.
Result<Fd> clone_mount(int fd, Access access, bool recursive, const std::string& what);

// The same file in the mount namespace of the caller. ISOGATE_INTERNAL if another file is there.
Result<Fd> find_here(int fd, const std::string& what);

// A fresh file system, detached. `options`: name=value, with commas between.
Result<Fd> fresh_mount(const char* type, const std::string& options, uint64_t attributes);

// Puts a detached mount on a directory or file.
Result<void> attach(const Fd& mount, int directory, const std::string& path, const std::string& what);

}  // namespace isogate::ns
