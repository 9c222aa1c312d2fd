// Room on the sandboxes' disk that no tenant's upload takes, so that the next one can be served, recorded and
// purged.
//
// Uploads end while the file system still has 256 MiB free, or 5 % of a small one; on a tmpfs, while this
// machine has so much memory free. And each process holds 8 MiB, or 1 %, in a file without a name: it is
// released when programs have filled the disk all the same and a sandbox is to be made or purged. Any thread.
#pragma once

#include <functional>
#include <string>

#include "lib/error.h"

namespace isogate {

// Asked for each piece of what is written; an error ends the writing. Empty: always.
using Room = std::function<Result<void>()>;

// ISOGATE_RESOURCE_EXHAUSTED with ENOSPC where the file system of this directory has too little free. It is
// looked at ten times a second at most.
Result<void> room_for_upload(const std::string& sandboxes_dir);

// The same of memory and swap, for what is written to a tmpfs. ISOGATE_RESOURCE_EXHAUSTED with ENOMEM.
Result<void> room_in_memory();

// Before something is made in `sandboxes` (a directory of this process's user, borrowed): releases the
// reserve of a full file system, and makes it again on one that has room.
void make_room(int sandboxes);

}  // namespace isogate
