// Raw code: see raw_syscall.h. The last steps of every program, whoever starts it.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>

#include "runner/exec/raw_syscall.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate {

// -ENOENT if the working directory was removed since it was found.
static inline long raw_check_directory() {
  struct stat info = {};
  const long found = raw::call(SYS_newfstatat, AT_FDCWD, ".", &info, 0);
  return found < 0 ? found : info.st_nlink == 0 ? -ENOENT : 0;
}

static inline void yield_to_reaper(int nice) { raw::call(SYS_setpriority, PRIO_PROCESS, 0, nice); }

}  // namespace isogate
