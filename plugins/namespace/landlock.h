// A second barrier behind the mounts: Landlock (Linux 5.19) allows changes only in the workspace, /tmp
// and /dev/shm, no device anywhere, and from 6.12 on no signal to the outside. See landlock(7).
#pragma once

#include "lib/fd.h"

namespace isogate::ns {

// A ruleset for the mount namespace of the caller; empty if this kernel has no Landlock, or one that would
// forbid moving files between directories.
Result<Fd> make_ruleset();

int landlock_version();  // 0: none

}  // namespace isogate::ns
