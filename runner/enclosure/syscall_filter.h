// The policy of syscall_policy.h as classic BPF programs. Pure functions.
//
// Numbers are sorted into ranges and decided by a balanced tree: installing a filter costs by its length, and
// by the steps each possible number takes. A number of another architecture kills.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "lib/error.h"

namespace isogate {

// For a program in a pid namespace of its own: an allow-list. pid 1 is its reaper. `tracing`: programs may
// trace each other. ISOGATE_INTERNAL where the table contradicts itself.
Result<std::vector<sock_filter>> make_sandbox_filter(bool tracing);

// For programs beside their reaper, with the same user and in the same pid namespace: everything is
// allowed but to change limits and scheduling of others, and to signal pid 1. The reaper itself may have
// it, which spares each program the installing.
Result<std::vector<sock_filter>> make_guard_filter();

}  // namespace isogate
