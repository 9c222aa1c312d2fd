// Limits of one group, v1 and v2: written, and read back. A limit that does not read back as requested
// (or tighter, by rounding to pages) is an error: it is not in force.
#pragma once

#include <cstdint>
#include <string>

#include "lib/fd.h"

namespace isogate {

// RAM and swap together. v1: memsw, v2: no swap at all, and the whole group dies of out-of-memory.
Result<void> set_memory_limit(int group_fd, int version, uint64_t bytes);
// Buffers of sockets. v1 counts them separately, and only in a group with a limit on them; v2 counts them
// with the rest. set_memory_limit() also sets it.
Result<void> set_socket_memory_limit(int group_fd, int version, uint64_t bytes);
Result<void> set_pids_limit(int group_fd, int version, uint64_t pids);
// How many processes and threads all sandboxes of a backend may have together: three quarters of what this
// host can have, and what the group above theirs and those above it may have, so that the host and the
// gateway can always start some. 0: unknown.
uint64_t most_pids_below(int group_fd);
Result<void> set_cpu_limit(int group_fd, int version, uint64_t millis);
// One processor more than that limit, as its file takes it: `cpu.max`, or in v1 `cpu.cfs_quota_us`.
std::string raised_cpu_limit(int version, uint64_t millis);

// Whether this machine has no swap at all now. False: it has, or that cannot be read.
bool swap_is_off();

// What is in force now; 0: none, or it cannot be read.
uint64_t read_memory_limit(int group_fd, int version);
uint64_t read_pids_limit(int group_fd);
uint64_t read_cpu_limit(int group_fd, int version);

}  // namespace isogate
