// What setrlimit(2) bounds of a program: data for its spawn. Plain values. Any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace isogate {

struct ProcessLimit {
  int resource;
  uint64_t soft, hard;
};

// RLIMIT_NOFILE of a program on any backend. A sandbox may have so many open files for each of its processes.
constexpr uint64_t kProgramSoftFiles = 1024, kProgramFiles = 16384;

// Both limits, as far as this process may set them.
ProcessLimit process_limit(int resource, uint64_t soft, uint64_t hard);

// Those of every program, on any backend: no core, and its open files.
std::vector<ProcessLimit> program_limits();

}  // namespace isogate
