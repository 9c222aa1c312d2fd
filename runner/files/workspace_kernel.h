// Files that the kernel generates on reading (/proc, /sys, …): the size from stat means nothing (0 or
// 4,096), so they are read to their end. Only with scope sandbox.
//
// The kernel checks some against the credentials of the reader, not only of the opener: they are read as the
// identity, and only if their permission bits admit it. Those about a process are not even resolved
// (workspace_resolve.h).
#pragma once

#include <sys/stat.h>

#include "runner/exec/command.h"

namespace isogate {

// By its file system, or because its size is 0 but its content is not empty. `file` is open for reading.
bool is_kernel_file(int file, const struct stat& info);

// A read (backend.h) of such a file: from its begin, since few can seek; with a limit of 0 nothing is read.
// The entry has the size that was found, if the end was. ISOGATE_CANCELLED as pump_out();
// ISOGATE_PERMISSION_DENIED: `identity` may not get its content; ISOGATE_NOT_REGULAR: the kernel does not let
// it be read.
Result<isogate_entry> read_kernel_file(int file, const struct stat& info, const Identity& identity,
                                       const isogate_file_request& request, int cancel_fd);

}  // namespace isogate
