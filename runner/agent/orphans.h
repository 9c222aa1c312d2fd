// Orphans: processes whose parent died before them, which this process adopts as pid 1 or as subreaper. While
// a program's reaper lives there are none of it; a tenant that kills its own reaper sends the rest of its
// tree here.
//
// The kernel keeps orphans apart from the children of an exec under way: those are clone children, which end
// without SIGCHLD and which a plain waitid(2) does not see (wait(2), __WCLONE); a process that gets a new
// parent sends SIGCHLD when it ends. So no exit status of an exec is ever taken, and none of its processes
// killed. That none is left is also the kernel's answer, ECHILD, and never that of a /proc in which nothing
// was found: it may be unreadable. Any thread.
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

  // Something is started on purpose for as long as one of these lives.
  class Run {
   public:
    explicit Run(Orphans& orphans) : lock_(orphans.runs_) {}

   private:
    std::shared_lock<std::shared_mutex> lock_;
  };

  // Does it unless something runs; meanwhile nothing is started.
  void while_nothing_runs(const std::function<void()>& work);

  // Kills all orphans with their descendants, and reaps them; false: some were still there after `patience`.
  // Where they cannot be found and nothing runs, pid 1 kills everything; while something runs, it ends itself
  // and so all there is.
  bool sweep(std::chrono::milliseconds patience);

  // Continues reapers that somebody has stopped; with `kill` they are killed, which ends their execs as lost
  // and makes the rest orphans. Returns how many were stopped.
  size_t continue_reapers(bool kill);

 private:
  bool kill_unseen();

  std::mutex mutex_;
  std::shared_mutex runs_;
};

// The children of this process, reapers and orphans alike. nullopt: they cannot be listed.
std::optional<std::vector<pid_t>> own_children();

}  // namespace isogate::agent
