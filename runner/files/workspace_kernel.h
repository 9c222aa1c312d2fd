// Files that the kernel generates on reading (/proc, /sys, …): the size from stat means nothing (0 or
// 4,096), so they are read to their end. Only with scope sandbox.
//
// The kernel checks some against the credentials of the reader, not only of the opener, and the reader is
// this process. So files about a process are refused (/proc/self would be the gateway's own), and files
// whose permission bits do not admit the identity. An exec reads both as itself.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "runner/exec/command.h"

namespace isogate {

// By its file system, or because its size is 0 but its content is not empty. `file` is open for reading.
bool is_kernel_file(int file, const struct stat& info);

// Whether `identity` may get its content: ISOGATE_PERMISSION_DENIED if not.
Result<void> check_kernel_file(int file, const struct stat& info, const Identity& identity);

struct KernelRead {
  uint64_t sent = 0;
  uint64_t passed = 0;  // bytes from the file's begin to where the reading stopped
  bool at_end = false;
};
// Its bytes from offset on, at most `limit`, to `out`; read from its begin, since few can seek. With a limit
// of 0 nothing is read. ISOGATE_CANCELLED as pump_out(); ISOGATE_NOT_REGULAR: the kernel does not let it be
// read.
Result<KernelRead> pump_kernel_file(int file, uint64_t offset, uint64_t limit, int out, int cancel_fd);

}  // namespace isogate
