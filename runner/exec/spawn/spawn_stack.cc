#include "runner/exec/spawn/spawn_stack.h"

#include <sys/mman.h>

#include <cerrno>

namespace isogate {
namespace {

constexpr size_t kGuard = 64 * 1024;  // the largest page size in use
constexpr size_t kReport = 4096;

// guard, reaper's stack, guard, program's stack
constexpr size_t kStacks = 2 * (kGuard + SpawnStack::kSize);

Result<std::unique_ptr<SpawnStack>> map() {
  auto stack = std::make_unique<SpawnStack>();
  void* shared = ::mmap(nullptr, kReport, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return os_error("cannot map a report page", errno);
  stack->report = static_cast<SpawnReport*>(shared);
  *stack->report = {};  // touched here, so that no child's memory cgroup is charged for it
  void* stacks = ::mmap(nullptr, kStacks, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (stacks == MAP_FAILED) return os_error("cannot map a stack", errno);
  char* const first = static_cast<char*>(stacks) + kGuard;
  char* const second = first + SpawnStack::kSize + kGuard;
  stack->reaper = first;
  stack->program = second;
  if (::mprotect(first, SpawnStack::kSize, PROT_READ | PROT_WRITE) != 0 ||
      ::mprotect(second, SpawnStack::kSize, PROT_READ | PROT_WRITE) != 0)
    return os_error("cannot map a stack", errno);
  return stack;
}

}  // namespace

SpawnStack::~SpawnStack() {
  if (reaper != nullptr) ::munmap(static_cast<char*>(reaper) - kGuard, kStacks);
  if (report != nullptr) ::munmap(report, kReport);
}

Result<std::unique_ptr<SpawnStack, SpawnStackPool::GiveBack>> SpawnStackPool::take() {
  std::unique_ptr<SpawnStack, GiveBack> stack(nullptr, GiveBack{this});
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      stack.reset(free_.back().release());
      free_.pop_back();
      return stack;
    }
  }
  auto mapped = map();
  if (!mapped) return mapped.error();
  stack.reset(mapped->release());
  return stack;
}

void SpawnStackPool::GiveBack::operator()(SpawnStack* stack) const {
  const std::lock_guard lock(pool->mutex_);
  pool->free_.emplace_back(stack);
}

}  // namespace isogate
