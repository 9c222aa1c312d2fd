// The memory a run borrows: stacks for the reaper and the program, each under a guard page, and one
// page that parent and child share even when the child copies the address space. Pooled, because
// mapping and faulting it in costs more than the clone.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "runner/exec/spawn/spawn.h"

namespace isogate {

struct SpawnStack {
  SpawnStack() = default;
  ~SpawnStack();
  SpawnStack(const SpawnStack&) = delete;
  SpawnStack& operator=(const SpawnStack&) = delete;

  static constexpr size_t kSize = 64 * 1024;  // of each stack
  void* reaper = nullptr;
  void* program = nullptr;
  SpawnReport* report = nullptr;
};

class SpawnStackPool {  // any thread
 public:
  struct GiveBack {
    SpawnStackPool* pool;
    void operator()(SpawnStack* stack) const;
  };
  Result<std::unique_ptr<SpawnStack, GiveBack>> take();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<SpawnStack>> free_;
};

}  // namespace isogate
