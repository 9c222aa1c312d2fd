// What is left to this process by those of its descendants that died before their children: as pid 1, or as
// subreaper. While a program's supervisor lives nothing of it comes here; a tenant who kills its own
// supervisor sends the rest of its tree.
//
// A stray is told from the children of a run in flight by the kernel: those are clone children, which end
// without SIGCHLD and which a plain waitid(2) does not see (wait(2), __WCLONE), whereas whoever is given a
// new parent gets SIGCHLD as the signal of its end. So no exit status of a run is ever taken, and none of its
// processes killed. That there is none is the kernel's word too, ECHILD, and never that of a /proc in which
// nothing was found: it may be unreadable. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <vector>

namespace isogate::resident {

class Strays {
 public:
  // This process adopts what its descendants leave behind, as pid 1 does anyway.
  static void adopt();

  // Something is started on purpose for as long as one of these lives.
  class Run {
   public:
    explicit Run(Strays& strays) : lock_(strays.runs_) {}

   private:
    std::shared_lock<std::shared_mutex> lock_;
  };

  // Kills all strays with their descendants, and reaps them; false: some were still there after `patience`.
  // Where they cannot be found and nothing runs, pid 1 kills everything; while something runs, it ends itself
  // and so all there is.
  bool sweep(std::chrono::milliseconds patience);

  // Lets supervisors go on that somebody has stopped; with `kill` they are killed, which ends their runs as
  // lost and makes the rest strays. The number of those it found.
  size_t rouse(bool kill);

 private:
  bool kill_unseen();

  std::mutex mutex_;
  std::shared_mutex runs_;
};

// The children of this process, supervisors and strays alike. nullopt: it cannot be seen which they are.
std::optional<std::vector<pid_t>> own_children();

}  // namespace isogate::resident
