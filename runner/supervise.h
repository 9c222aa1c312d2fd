// The one loop that every run goes through, and the three ways to be in it.
//
// The loop spawns the program, waits for its end, for the cancel descriptor, control records, the
// terminal, and makes sure that nothing is left. It is raw code (raw_syscall.h), because it runs either
//   - on the calling thread, when the program is born in a cgroup2 leaf: raw_supervise_leaf(),
//   - on the calling thread, when an enclosure's init (init_protocol.h) runs the program:
//   raw_supervise_init(): the
//     kernel ends all of its pid namespace with it, or
//   - in a supervisor, raw_supervise_child(): a child that shares this address space and these
//     descriptors while the calling thread is suspended (CLONE_VM | CLONE_FILES | CLONE_VFORK), so that it
//     writes its findings straight into `result`. It is the subreaper of everything the program
//     leaves behind, watches the host's pidfd, and ends when wait4 says ECHILD: nothing is left.
//
// A supervisor holds no copy of other runs' pipes (CLONE_FILES) and lets go of the host's descriptors as
// soon as the host has died. It shares the fate of this address space in an out-of-memory kill, and
// before Linux 5.16 in a core dump: then the program still dies (PR_SET_PDEATHSIG), daemons may not.
#pragma once

#include <cstdint>

#include "isogate/backend.h"
#include "runner/cgroup.h"
#include "runner/init_protocol.h"
#include "runner/pty.h"
#include "runner/spawn.h"
#include "runner/spawn_rescue.h"
#include "runner/tree.h"

namespace isogate {

constexpr uint64_t kKillPatienceNs = 10'000'000'000;  // for what SIGKILL does not end: a stuck disk

struct SupervisionResult {
  long spawn_error = 0;  // -errno: there was no child at all
  int pid = 0;
  int status = 0;  // wait status of the program, valid when ended
  bool ended = false;
  bool status_lost = false;  // somebody else reaped it (SIGCHLD ignored by the host)
  bool killed = false;       // cancel_fd fired first
  bool out_of_memory = false;
  bool left_behind = false;  // something could not be killed in kKillPatienceNs
  bool leaf_spent = false;   // cgroup.kill was used: the leaf must be replaced
  bool quota_lifted = false;
  bool from_init = false;    // the figures are of an init's report
  bool init_lost = false;    // the init ended without a report
  bool init_reaped = false;  // it was waited for
  bool finished = false;     // the loop came to its end; false: the supervisor itself was killed
  uint64_t start_ns = 0, end_ns = 0, cpu_ns = 0, max_rss_kib = 0;
};

struct Supervision {
  SpawnPlan plan;
  StartUnderWay start;  // its cancel_fd, and the program's pidfd: made by the loop, closed by the caller
  int control_fd = -1;
  PtyPump* pump = nullptr;
  // With a leaf:
  int leaf_events_fd = -1, leaf_kill_fd = -1;
  // With a supervisor:
  bool supervisor = false;
  int host_pidfd = -1;
  int child_signal_fd = -1;  // a signalfd for SIGCHLD; it answers for whoever polls it
  TreeWalk walk = TreeWalk::children;
  // With an init, which has its order already:
  int init_socket = -1;
  InitReport init_report = {};
  uint32_t init_heard = 0;  // bytes of it
  // With a memory limit that kills one task of the tree, not all of it (cgroup v1):
  int oom_fd = -1;          // memory.oom_control
  uint64_t oom_before = 0;  // what its counter said before

  CpuQuota quota;

  char control[sizeof(isogate_control) * 16];
  uint32_t control_length = 0;
  bool cancelled = false;
  uint64_t kill_began_ns = 0;
  SupervisionResult result;
};

void raw_supervise_leaf(Supervision& supervision);
void raw_supervise_init(Supervision& supervision);  // result.start_ns is set

// 0, or -errno when there could be no supervisor. Blocks until it has ended and been reaped.
long raw_supervise_child(Supervision& supervision, void* stack, size_t stack_size);

// "oom_kill N" of memory.oom_control or memory.events; 0 where that cannot be read.
uint64_t raw_oom_kills(int fd);

// Whether cgroup.events says "populated 1"; true where that cannot be read.
bool raw_populated(int events_fd);

}  // namespace isogate
