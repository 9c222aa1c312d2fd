// The process-wide things the supervisor takes over before it starts anything.
#pragma once

#include <sys/types.h>

#include <vector>

#include "lib/fd.h"

namespace isogate::supervisor {

// No LD_* in the environment, RLIMIT_NOFILE raised as far as it goes, no core, umask 022, subreaper, not
// dumpable.
Result<void> prepare_process();

// Blocks SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGCHLD and returns the signalfd that receives them;
// ignores SIGPIPE.
Result<Fd> take_signals();

// The pending signals. A repeated signal may be reported once.
std::vector<int> pending_signals(int signal_fd);

struct Ended {
  int pid;
  int wait_status;
};
// Every child that has ended, our own and those that were reparented to us.
std::vector<Ended> reap();

// Of the calling thread, in no order.
std::vector<pid_t> children();

// After the last of our own children: gives processes that hosts have left a second to end, then
// kills them, but for `spared`. Returns how many it killed.
int end_orphans(const std::vector<pid_t>& spared = {});

}  // namespace isogate::supervisor
