// What an operator may show to every sandbox: a directory of this host that holds nothing of the gateway's
// and no way to somebody else's service.
#pragma once

#include <string>
#include <vector>

#include "runner/error.h"

namespace isogate::ns {

// `what` is for the message: "the shared directory `docs`". Refused are /, what overlaps `own` (the gateway's
// directories) or the kernel's and the services' (/proc, /sys, /dev, /run), and trees with a socket in them,
// as far as the first 20,000 entries tell. ISOGATE_INVALID_ARGUMENT then.
Result<void> check_shown(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what);

// The same for a directory that stays at its own path: not below what a sandbox has of its own either (/tmp,
// /workspace).
Result<void> check_in_place(const std::string& path, const std::vector<std::string>& own,
                            const std::string& what);

}  // namespace isogate::ns
