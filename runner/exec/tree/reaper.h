// The loop that every exec runs in, and the three places it runs.
//
// The loop spawns the program, waits for its end, cancellation, control records and terminal bytes, and ends
// the whole process tree. It is raw code (raw_syscall.h), because it runs
//   - on the calling thread, when the program starts in a cgroup2 leaf: raw_run_leaf();
//   - on the calling thread, when an enclosure's init (init_protocol.h) runs the program: raw_run_init(). The
//     kernel ends the pid namespace with its init;
//   - in a reaper: raw_run_reaper(). That child shares this address space and these descriptors while the
//     calling thread is suspended (CLONE_VM | CLONE_FILES | CLONE_VFORK), so it writes straight into
//     `result`. It is the subreaper of the program's tree, watches the host's pidfd, and ends when wait4
//     answers ECHILD: nothing is left.
//
// A reaper holds no copy of other execs' pipes (CLONE_FILES) and closes the host's descriptors as soon as the
// host has died. An out-of-memory kill of this address space ends it too, as does a core dump before Linux
// 5.16: then the program still dies (PR_SET_PDEATHSIG), daemons may not.
#pragma once

#include <cstdint>

#include "isogate/backend.h"
#include "runner/cgroup/cgroup.h"
#include "runner/enclosure/init_protocol.h"
#include "runner/exec/pty.h"
#include "runner/exec/spawn/spawn.h"
#include "runner/exec/spawn/spawn_rescue.h"
#include "runner/exec/tree/control_records.h"
#include "runner/exec/tree/tree.h"

namespace isogate {

constexpr uint64_t kKillPatienceNs = 10'000'000'000;  // for processes that SIGKILL does not end: a stuck disk

struct RunLoopResult {
  long spawn_error = 0;  // -errno: there was no child at all
  int pid = 0;
  int status = 0;  // wait status of the program, valid when ended
  bool ended = false;
  bool status_lost = false;  // other code reaped it (SIGCHLD ignored by the host)
  bool killed = false;       // cancel_fd fired first
  bool out_of_memory = false;
  bool left_behind = false;  // something could not be killed in kKillPatienceNs
  bool leaf_spent = false;   // cgroup.kill was used: the leaf must be replaced
  bool quota_raised = false;
  bool from_init = false;    // the figures are of an init's report
  bool init_lost = false;    // the init ended without a report
  bool init_reaped = false;  // it was waited for
  bool finished = false;     // the loop has ended; false: the reaper was killed
  uint64_t start_ns = 0, end_ns = 0, cpu_ns = 0, max_rss_kib = 0;
};

struct RunLoop {
  SpawnPlan plan;
  StartUnderWay start;  // its cancel_fd, and the program's pidfd: made by the loop, closed by the caller
  int control_fd = -1;
  PtyPump* pump = nullptr;
  // With a leaf:
  int leaf_events_fd = -1, leaf_kill_fd = -1;
  // In a reaper:
  bool in_reaper = false;
  int reaper_pid = 0;  // written by the reaper
  int host_pidfd = -1;
  int child_signal_fd = -1;  // a signalfd for SIGCHLD; it reports for the process that polls it
  TreeWalk walk = TreeWalk::children;
  // With an init, which has its order already:
  int init_socket = -1;
  InitReport init_report = {};
  uint32_t init_received = 0;       // bytes of it
  uint64_t init_cpu_before_ns = 0;  // of its earlier runs
  // With a memory limit that kills one task of the tree, not all of it (cgroup v1):
  int oom_fd = -1;          // memory.oom_control
  uint64_t oom_before = 0;  // its counter before the run

  CpuQuota quota;

  ControlRecords control;
  bool cancelled = false;
  uint64_t kill_began_ns = 0;
  RunLoopResult result;
};

void raw_run_leaf(RunLoop& loop);
void raw_run_init(RunLoop& loop);  // result.start_ns is set

// 0, or -errno when there could be no reaper. Blocks until it has ended and been reaped.
long raw_run_reaper(RunLoop& loop, void* stack, size_t stack_size);

// "oom_kill N" of memory.oom_control or memory.events; 0 where that cannot be read.
uint64_t raw_oom_kills(int fd);

// Whether cgroup.events has "populated 1"; true where that cannot be read.
bool raw_populated(int events_fd);

}  // namespace isogate
