// The memory a run borrows: stacks for the reaper and the program, each under a guard page, and one
// page that parent and child share even when the child copies the address space. Pooled, because
// mapping and faulting it in costs more than the clone.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "runner/exec/spawn/spawn.h"

namespace isogate {

struct SpawnStack {
  void* reaper;
  void* program;
  SpawnReport* report;
  static constexpr size_t kSize = 64 * 1024;  // of each stack
};

class SpawnStackPool {  // any thread
 public:
  SpawnStackPool() = default;
  SpawnStackPool(const SpawnStackPool&) = delete;
  SpawnStackPool& operator=(const SpawnStackPool&) = delete;
  ~SpawnStackPool();

  Result<SpawnStack> take();
  void give_back(SpawnStack stack);

 private:
  std::mutex mutex_;
  std::vector<SpawnStack> free_;
};

}  // namespace isogate
