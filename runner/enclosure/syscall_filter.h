// The policy of syscall_policy.h as classic BPF programs. Pure functions.
//
// Numbers are sorted into ranges and decided by a balanced tree: the cost of installing a filter grows with
// its length, and with the steps for each possible number. A number of another architecture kills.
#pragma once

#include <linux/filter.h>

#include <vector>

#include "lib/error.h"

namespace isogate {

// For a program in its own pid namespace: an allow-list. pid 1 is its reaper. `tracing`: programs may
// trace each other. ISOGATE_INTERNAL if the table contradicts itself.
Result<std::vector<sock_filter>> make_sandbox_filter(bool tracing);

// For programs beside their reaper, with the same user and in the same pid namespace: everything is
// allowed except changing limits and scheduling of others, and signalling pid 1. The reaper itself may
// install it, so that each program need not.
Result<std::vector<sock_filter>> make_guard_filter();

}  // namespace isogate
