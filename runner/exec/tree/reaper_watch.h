// The watcher: one small process per Runner that outlives the host by a moment.
//
// Programs in cgroup2 leaves have no reaper, so another process must act when the host is killed. The watcher
// polls the host's pidfd, then kills what is in the Runner's base directory (cgroup.kill) and removes the
// Runner's groups. It is a forked child, not a thread and not a sharer of this address space: an
// out-of-memory kill or a core dump of the host must not end it. It holds no descriptor but the host's pidfd
// and the groups', gives back every writable page it was forked with (no secret stays, no memory is pinned),
// is not dumpable, blocks all signals, and a tenant of another uid cannot signal it. Tenants that share this
// uid can kill it; then the next start sweeps what is left.
#pragma once

#include <cstddef>

namespace isogate {

struct WatchedBase {
  int parent_fd = -1, dir_fd = -1;
  int kill_fd = -1;  // cgroup.kill, or -1 (v1)
  char name[64] = {};
};

struct WatchPlan {
  static constexpr int kMaxBases = 6;
  int host_pidfd = -1;
  int count = 0;
  WatchedBase bases[kMaxBases];
};

// The watcher's pid, a child of this process to be ended with SIGKILL and waited for (__WALL); or -errno.
// Borrows both stacks for the call.
long raw_start_watcher(const WatchPlan& plan, void* first_stack, void* second_stack, size_t stack_size);

}  // namespace isogate
