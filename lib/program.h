// Starts helper programs.
#pragma once

#include <sys/types.h>

#include <span>
#include <string>
#include <vector>

#include "lib/error.h"
#include "lib/fd.h"

namespace isogate {

// `texts` as exec(3) takes them; valid while they are unchanged.
std::vector<char*> pointers(std::vector<std::string>& texts);

// Starts `program`, searched in PATH if it has no slash, without blocked or ignored signals. `files`: what it
// has as descriptors 0, 1 and so on; -1: /dev/null. `own_group`: it leads a process group. Its pid, for
// waitpid(2).
Result<pid_t> spawn_program(const std::string& program, std::vector<std::string> arguments,
                            std::vector<std::string> environment, std::span<const int> files, bool own_group);

// Readable once that process has ended; none before Linux 5.3 (errno).
Fd watch_process(pid_t pid);

}  // namespace isogate
