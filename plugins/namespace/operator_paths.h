// A directory of this host that an operator may show to every sandbox: it holds nothing of the gateway,
// and no socket of a service.
#pragma once

#include <string>
#include <vector>

#include "lib/error.h"

namespace isogate::ns {

// `what` is for the message: "the shared directory `docs`". Refused are / and what overlaps `own` (the
// gateway's directories) or the kernel's and the services' (/proc, /sys, /dev, /run).
// ISOGATE_INVALID_ARGUMENT then.
Result<void> check_apart(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what);

// Refuses a tree that contains a socket, also in mounts below it, and one that cannot be searched: a
// read-only mount does not prevent connecting. Checked once, not later.
Result<void> check_no_socket(std::string path, const std::string& what);

// Both.
Result<void> check_shown(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what);

// The same for a directory that stays at its own path: also not below a sandbox's own directories (/tmp,
// /workspace).
Result<void> check_in_place(const std::string& path, const std::vector<std::string>& own,
                            const std::string& what);

}  // namespace isogate::ns
