// The records of a watch (isogate_change in backend.h), written by the watcher and parsed by the reader.
// Pure functions, any thread. Fuzzed: the input comes from a backend.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "isogate/backend.h"
#include "lib/error.h"

namespace isogate {

struct FileChange {
  uint32_t type = 0;            // ISOGATE_CHANGE_*; one that is not known here is left as it is
  bool directory = false;       // ISOGATE_CHANGE_DIRECTORY
  std::string_view path, from;  // of the bytes it was taken from
};

// Both paths are at most ISOGATE_CHANGE_MAX_PATH bytes.
void append_change(std::string& out, const FileChange& change);

// Takes one record off the front of `bytes` and advances it; nullopt: more bytes are needed, of which the
// record never has more than kMaxChangeBytes. ISOGATE_INTERNAL: it is malformed, or a path in it leads
// outside the directory.
inline constexpr size_t kMaxChangeBytes = sizeof(isogate_change) + size_t{2} * ISOGATE_CHANGE_MAX_PATH;
Result<std::optional<FileChange>> take_change(std::string_view& bytes);

}  // namespace isogate
