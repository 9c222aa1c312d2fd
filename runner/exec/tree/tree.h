// Finds, stops or kills every descendant of a process, however often they fork meanwhile. Raw code
// (raw_syscall.h).
//
// The tree is stopped before it is killed: SIGSTOP to all that a walk over /proc finds, until a whole
// walk finds nothing new, then SIGKILL to what the last walk saw. Killing without stopping loses
// against a fork bomb. One call is one attempt: the caller reaps, and calls again until nothing is left.
#pragma once

namespace isogate {

enum class TreeWalk {
  children,  // /proc/PID/task/TID/children
  scan,      // the parent in every /proc/PID/stat, for kernels without CONFIG_PROC_CHILDREN
};

// children where the kernel has them.
TreeWalk raw_tree_walk();

// `root` itself is spared. The number of processes that were sent SIGKILL, or -errno if a part of /proc could
// not be read: then the processes found are killed, and more may exist.
long raw_kill_descendants(int root, TreeWalk walk);

// Lists the processes except `root`, parents before their children: returns how many there are, and writes
// the first `most` to `pids`; or -errno if a part of /proc could not be read. With `stop` each was sent
// SIGSTOP, and none has forked since, unless it was continued.
long raw_list_descendants(int root, TreeWalk walk, bool stop, int* pids, long most);

}  // namespace isogate
