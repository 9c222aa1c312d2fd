#include "runner/exec/spawn/spawn_stack.h"

#include <sys/mman.h>

#include <cerrno>

namespace isogate {
namespace {

constexpr size_t kGuard = 64 * 1024;  // the largest page size in use
constexpr size_t kReport = 4096;

// guard, reaper's stack, guard, program's stack
constexpr size_t kStacks = 2 * (kGuard + SpawnStack::kSize);

void unmap(const SpawnStack& stack) {
  ::munmap(static_cast<char*>(stack.reaper) - kGuard, kStacks);
  ::munmap(stack.report, kReport);
}

Result<SpawnStack> map() {
  void* shared = ::mmap(nullptr, kReport, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return os_error("cannot map a report page", errno);
  void* stacks = ::mmap(nullptr, kStacks, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) {
    const int error = errno;
    ::munmap(shared, kReport);
    return os_error("cannot map a stack", error);
  }
  char* const first = static_cast<char*>(stacks) + kGuard;
  char* const second = first + SpawnStack::kSize + kGuard;
  auto* report = static_cast<SpawnReport*>(shared);
  *report = {};  // touched here, so that no child's memory cgroup is charged for it
  const SpawnStack stack{first, second, report};
  if (::mprotect(first, SpawnStack::kSize, PROT_READ | PROT_WRITE) != 0 ||
      ::mprotect(second, SpawnStack::kSize, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    unmap(stack);
    return os_error("cannot map a stack", error);
  }
  return stack;
}

}  // namespace

SpawnStackPool::~SpawnStackPool() {
  for (const auto& stack : free_) unmap(stack);
}

Result<SpawnStack> SpawnStackPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      const SpawnStack stack = free_.back();
      free_.pop_back();
      return stack;
    }
  }
  return map();
}

void SpawnStackPool::give_back(SpawnStack stack) {
  const std::lock_guard lock(mutex_);
  free_.push_back(stack);
}

}  // namespace isogate
