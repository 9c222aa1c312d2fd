// Disk space that no tenant's upload may use, so that other sandboxes can be served, recorded and purged.
//
// Uploads stop when the file system has only 256 MiB free, or 5 % of a small one; on a tmpfs, when this
// machine, or a cgroup that this process is in, has only that much memory free. In addition each process
// holds 8 MiB, or 1 %, in a file without a name. It releases this when programs have filled the disk and a
// sandbox must be created or purged. Any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "lib/error.h"

namespace isogate {

// Called for each piece that is written; an error ends the write. Empty: no check.
using Room = std::function<Result<void>()>;

// ISOGATE_RESOURCE_EXHAUSTED with ENOSPC if the file system of this directory has too little free. Checks
// it at most ten times a second.
Result<void> room_for_upload(const std::string& sandboxes_dir);

// The same of memory and swap, for what is written to a tmpfs, which counts in this process's cgroups: in no
// limit of a sandbox. ISOGATE_RESOURCE_EXHAUSTED with ENOMEM.
Result<void> room_in_memory();

struct Memory {
  uint64_t all = 0, free = 0;  // bytes
};
// Of a cgroup, with what the kernel can drop as free. Without a limit all of it is; nullopt: it counts none.
std::optional<Memory> memory_of_group(const std::string& directory, int version);

// Call before something is made in `sandboxes` (a directory of this process's user, borrowed):
// releases the reserve of a full file system, and restores it on one that has room.
void make_room(int sandboxes);

}  // namespace isogate
