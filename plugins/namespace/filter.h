// The system call filter of a sandbox, by its profile.
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
