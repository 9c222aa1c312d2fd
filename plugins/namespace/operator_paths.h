// What an operator may show to every sandbox: a directory of this host that holds nothing of the gateway's
// and no way to somebody else's service.
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

// Refused is a tree with a socket in it, in what is mounted below as well, and one that cannot be looked
// through: a read-only mount holds nobody back from connecting. Checked once: nobody watches it later.
Result<void> check_no_socket(std::string path, const std::string& what);

// Both.
Result<void> check_shown(const std::string& path, const std::vector<std::string>& own,
                         const std::string& what);

// The same for a directory that stays at its own path: not below what a sandbox has of its own either (/tmp,
// /workspace).
Result<void> check_in_place(const std::string& path, const std::vector<std::string>& own,
                            const std::string& what);

}  // namespace isogate::ns
