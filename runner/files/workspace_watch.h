// Watches a directory, or a tree, and writes changes to a pipe: isogate_change records (backend.h).
//
// By inotify(7), as the identity: it sees what the identity can list. Each watch has its own instance, so
// that one tenant's flood does not overflow another's. No directory is kept open, because an open one does
// not report its removal. Memory is bounded: by kMostWatched directories, and by kMostUnsent bytes for a slow
// reader; beyond these, changes are dropped, and OVERFLOW is reported. Events are read in batches,
// kBatchPause apart, so that a flood costs little. Any thread.
#pragma once

#include <chrono>
#include <string>

#include "runner/exec/command.h"
#include "runner/files/workspace_resolve.h"

namespace isogate {

inline constexpr size_t kMostWatched = 8192;      // directories of one watch
inline constexpr size_t kMostUnsent = 128 << 10;  // bytes
inline constexpr std::chrono::milliseconds kBatchPause{10};

struct Watched {
  Tree tree;
  std::string path;  // of the directory; resolved several times
  bool recursive = false;
  Identity identity;
};

// Returns when the directory is removed, or its path leads elsewhere. ISOGATE_CANCELLED: cancel_fd fired, or
// the reader has closed. ISOGATE_RESOURCE_EXHAUSTED: there are more directories than kMostWatched, or than
// the kernel lets one user watch. Any other error is that of resolve(), with its errno.
Result<void> watch_directory(const Watched& watched, int out, int cancel_fd);

}  // namespace isogate
