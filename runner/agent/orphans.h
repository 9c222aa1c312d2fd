// Orphans: processes whose parent died before them, which this process adopts as pid 1 or as subreaper. While
// a program's reaper lives, it has none; a tenant that kills its own reaper sends the rest of its tree here.
//
// The kernel distinguishes orphans from the children of a running exec: those are clone children, which end
// without SIGCHLD and which a plain waitid(2) does not see (wait(2), __WCLONE); a process that gets a new
// parent sends SIGCHLD when it ends. So this code never takes an exit status of an exec, and never kills
// its processes. It also relies on the kernel (ECHILD) to know that none is left, never on an empty /proc,
// which may be unreadable. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace isogate::agent {

class Orphans {
 public:
  // Makes this process a subreaper, as pid 1 is anyway.
  static void adopt();

  // While one of these lives, something is started deliberately.
  class Run {
   public:
    explicit Run(Orphans& orphans) : lock_(orphans.runs_) {}

   private:
    std::shared_lock<std::shared_mutex> lock_;
  };

  // Runs the function unless something runs; meanwhile nothing is started.
  void while_nothing_runs(const std::function<void()>& work);

  // Kills all orphans with their descendants, and reaps them; false: some still exist after `patience`. If
  // they cannot be found and nothing runs, pid 1 kills everything; if something runs, it ends itself and with
  // it the container.
  bool sweep(std::chrono::milliseconds patience);

  // Where a killed program does not end for so long: continues reapers that a program has stopped, and later
  // kills them, which ends their execs as lost and makes the rest orphans.
  void continue_reapers(std::chrono::steady_clock::duration overdue);

 private:
  bool kill_unseen();

  std::mutex mutex_;
  std::shared_mutex runs_;
};

// The children of this process, both reapers and orphans. nullopt: they cannot be listed.
std::optional<std::vector<pid_t>> own_children();

}  // namespace isogate::agent
