#include "runner/apart.h"

#include <linux/sched.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cerrno>
#include <exception>

#include "runner/raw_syscall.h"
#include "runner/spawn.h"

namespace isogate {
namespace {

constexpr size_t kGuard = 64 * 1024, kStack = 1024 * 1024;

struct Errand {
  const std::function<Result<void>()>* work;
  Result<void> result = Error{ISOGATE_INTERNAL, 0, "the child that should do it was killed"};
};

void go(void* argument) {
  Errand& errand = *static_cast<Errand*>(argument);
  try {
    errand.result = (*errand.work)();
  } catch (const std::exception& error) {
    errand.result = Error{ISOGATE_INTERNAL, 0, error.what()};
  } catch (...) {
    errand.result = Error{ISOGATE_INTERNAL, 0, "unknown exception"};
  }
  for (;;) raw::call(SYS_exit_group, 0);
}

}  // namespace

Result<void> run_apart(const std::function<Result<void>()>& work) {
  void* memory =
      ::mmap(nullptr, kGuard + kStack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return os_error("cannot map a stack", errno);
  char* const stack = static_cast<char*>(memory) + kGuard;
  if (::mprotect(stack, kStack, PROT_READ | PROT_WRITE) != 0) {
    ::munmap(memory, kGuard + kStack);
    return os_error("cannot map a stack", errno);
  }
  Errand errand{&work};
  CloneRequest request = {};
  request.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES;
  request.leaf_fd = -1;
  request.stack = stack;
  request.stack_size = kStack;
  request.entry = go;
  request.argument = &errand;
  uint64_t mask = 0;
  raw::block_signals(&mask);
  const long child = raw_clone(request);
  raw::restore_signals(&mask);
  if (child > 0) {
    while (::waitpid(static_cast<pid_t>(child), nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  ::munmap(memory, kGuard + kStack);
  if (child < 0) return os_error("cannot start a process", static_cast<int>(-child));
  return errand.result;
}

}  // namespace isogate
