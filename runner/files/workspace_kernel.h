// Files that the kernel makes up as they are read (/proc, /sys, …): the size that stat gives says nothing, 0
// or 4,096, so they are read to their end. Reached with scope sandbox alone.
//
// Some are checked against the credentials of who reads, not only of who opened, and that is this process:
// so what describes a process is refused (/proc/self would be the gateway's own), and so is what the
// permission bits do not give the identity. An exec reads both as itself.
#pragma once

#include <sys/stat.h>

#include <cstdint>

#include "runner/exec/command.h"

namespace isogate {

// By its filesystem, or since it is empty by its size and not by its content. `file` is open for reading.
bool is_kernel_file(int file, const struct stat& info);

// Whether its content may be handed to `identity`: ISOGATE_PERMISSION_DENIED.
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
