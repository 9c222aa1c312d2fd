// A second barrier behind the mounts: Landlock (Linux 5.19) allows changes in the workspace, /tmp and
// /dev/shm alone, no device anywhere, and where it can (6.12) no signal to the outside. See landlock(7).
#pragma once

#include "lib/fd.h"

namespace isogate::ns {

// A ruleset for the mount namespace of the caller; empty where this kernel has no Landlock, or one that would
// forbid moving files between directories.
Result<Fd> make_ruleset();

int landlock_version();  // 0: none

}  // namespace isogate::ns
