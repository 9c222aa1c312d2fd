// The part of /proc/self/status that describes the privileges of this process.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lib/error.h"

namespace isogate {

struct ProcessStatus {
  std::array<uint32_t, 4> uids{}, gids{};  // real, effective, saved, file system
  std::vector<uint32_t> groups;            // sorted
  uint64_t inheritable = 0, permitted = 0, effective = 0, bounding = 0, ambient = 0;
  bool no_new_privs = false;
  uint32_t seccomp = 0;  // 2: filtered
  uint32_t threads = 0;
};

// An error when a line is missing or unreadable: an unreadable value proves nothing.
Result<ProcessStatus> read_process_status();

}  // namespace isogate
