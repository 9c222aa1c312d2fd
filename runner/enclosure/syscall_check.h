// `isogate-runner syscalls`: which system calls are allowed here although the table of syscall_policy.h
// refuses them. Each is tried, with arguments that no kernel acts on.
#pragma once

#include <string>
#include <vector>

namespace isogate {

// Their names; empty: the profile of this process refuses all. Forks. One thread.
std::vector<std::string> open_syscalls();

// A line on stdout for each. Exit code 0: none, 10: some.
int report_open_syscalls();

}  // namespace isogate
