// From what the loop saw to what run() answers.
#pragma once

#include "runner/cgroup/cgroup.h"
#include "runner/exec/reaper.h"

namespace isogate {

// The program never ran, for a reason that a run without the leaf does not have.
bool leaf_was_at_fault(const RunLoop& loop, const SpawnReport& report, const CgroupSlot& slot);

// Also tells the program's stderr, as a shell does, when exec failed.
Result<Ending> ending_of(const Command& command, const RunLoop& loop, const SpawnReport& report,
                         const CgroupSlot& slot);

}  // namespace isogate
