// Moves bytes between files and the descriptors of a call. Blocks only in poll together with cancel_fd, so
// a peer that stalls never holds a thread past its cancellation. Nothing of a file is mapped or held in
// memory: splice(2) where both ends can, a 64 KiB buffer elsewhere. SIGPIPE never reaches the process.
#pragma once

#include <cstdint>
#include <string_view>

#include "runner/files/workspace_room.h"

namespace isogate {

// Waits until `fd` is readable; ISOGATE_CANCELLED when cancel_fd is first.
Result<void> wait_readable(int fd, int cancel_fd);

// Bytes offset … offset+count of a regular file to out; returns how many, fewer if the file ends
// earlier. ISOGATE_CANCELLED: cancel_fd fired, or the reader has closed.
Result<uint64_t> pump_out(int file, uint64_t offset, uint64_t count, int out, int cancel_fd);

// Bytes in memory to out; ISOGATE_CANCELLED as pump_out().
Result<void> pump_bytes(std::string_view bytes, int out, int cancel_fd);

// Writes all bytes of `in`, to its end, at the file's position; returns their number. When cancel_fd is
// readable at that end the body was truncated: ISOGATE_CANCELLED.
Result<uint64_t> pump_in(int in, int file, int cancel_fd, const Room& room = {});

// The first `size` bytes of a regular file, written from the other's position on; holes stay holes.
// ISOGATE_RESOURCE_EXHAUSTED with EBUSY: the file ends earlier now; with EFBIG: no file can be so large.
Result<void> copy_file(int from, uint64_t size, int to, int cancel_fd, const Room& room = {});

}  // namespace isogate
