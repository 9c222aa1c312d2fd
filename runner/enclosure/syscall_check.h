// `isogate-runner syscalls`: which system calls are allowed here although the table of syscall_policy.h
// refuses them. Each is tried, with arguments that no kernel acts on.
#pragma once

namespace isogate {

// A line on stdout for each. Exit code 0: none, 10: some. Forks. One thread.
int report_open_syscalls();

}  // namespace isogate
