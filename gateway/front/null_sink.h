// Bytes that are counted and thrown away.
#pragma once

#include <sys/types.h>

namespace isogate::front {

// Takes at most `most` bytes of what a non-blocking pipe holds without copying them here. As read(2): how
// many bytes, 0 at the end, -1 with errno EAGAIN when it is empty.
ssize_t discard_from_pipe(int pipe, size_t most);

}  // namespace isogate::front
