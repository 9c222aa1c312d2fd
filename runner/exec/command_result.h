// From the loop's observations to the result of run().
#pragma once

#include "runner/cgroup/cgroup.h"
#include "runner/exec/tree/reaper.h"

namespace isogate {

inline constexpr const char* kCommandTooLong =
    "the arguments and the environment are too long for the kernel (128 KiB each, 2 MiB in all)";

// The program never ran, for a reason that a run without the leaf does not have.
bool leaf_was_at_fault(const RunLoop& loop, const SpawnReport& report, const CgroupSlot& slot);

// If exec failed, also writes that to the program's stderr, as a shell does.
Result<Ending> ending_of(const Command& command, const RunLoop& loop, const SpawnReport& report,
                         const CgroupSlot& slot);

}  // namespace isogate
