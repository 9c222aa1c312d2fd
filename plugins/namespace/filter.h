// The system call filter of a sandbox: an allow-list, from the table in filter_table.h, as a classic BPF
// program.
//
// Numbers are sorted into ranges and decided by a balanced tree: installing a filter costs by its length, and
// by the steps each possible number takes. Pure functions.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <vector>

#include "runner/error.h"

namespace isogate::ns {

enum class Profile { kDefault, kDebug };  // debug: programs may trace each other

// ISOGATE_INTERNAL where the table contradicts itself.
Result<std::vector<sock_filter>> make_filter(Profile profile);

}  // namespace isogate::ns
