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

// `root` itself is spared. The number of processes that were sent SIGKILL, or -errno where one could not look
// everywhere: what was seen is killed then, and more may be there.
long raw_kill_descendants(int root, TreeWalk walk);

// Those that are there, parents before their children, but for `root`: how many there are, of which the first
// `most` are written to `pids`; or -errno where one could not look everywhere. With `stop` each was sent
// SIGSTOP, and none has forked since unless somebody lets it go on.
long raw_list_descendants(int root, TreeWalk walk, bool stop, int* pids, long most);

}  // namespace isogate
