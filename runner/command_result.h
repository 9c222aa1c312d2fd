// From what the loop saw to what run() answers.
#pragma once

#include <csignal>

#include "runner/cgroup.h"
#include "runner/supervise.h"

namespace isogate {

// While it lives, a write of this thread to a pipe without reader fails instead of killing the process.
class SigpipeGuard {
 public:
  SigpipeGuard();
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t old_{};
  bool was_pending_;
};

// The program never ran, for a reason that a run without the leaf does not have.
bool leaf_was_at_fault(const Supervision& supervision, const SpawnReport& report, const CgroupSlot& slot);

// Also tells the program's stderr, as a shell does, when exec failed.
Result<Ending> ending_of(const Command& command, const Supervision& supervision, const SpawnReport& report,
                         const CgroupSlot& slot);

}  // namespace isogate
