// Raw code: see raw_syscall.h.
#include <linux/sched.h>
#include <sys/wait.h>

#include <cerrno>

#include "runner/exec/raw_syscall.h"
#include "runner/exec/spawn/spawn.h"

// The child starts on its own stack and never returns through a frame of the parent's.
extern "C" {
__attribute__((visibility("hidden"))) long isogate_clone3(clone_args* arguments, size_t size,
                                                          void (*entry)(void*), void* argument);
__attribute__((visibility("hidden"))) long isogate_clone(uint64_t flags, void* stack_top, int* pidfd,
                                                         void (*entry)(void*), void* argument);
}

#if defined(__x86_64__)
asm(R"(
  .pushsection .text
  .hidden isogate_clone3
  .globl isogate_clone3
  .type isogate_clone3, @function
isogate_clone3:
  mov %rcx, %r8
  mov $435, %eax
  syscall
  test %rax, %rax
  jz 1f
  ret
1:
  xor %ebp, %ebp
  mov %r8, %rdi
  call *%rdx
  ud2
  .size isogate_clone3, . - isogate_clone3

  .hidden isogate_clone
  .globl isogate_clone
  .type isogate_clone, @function
isogate_clone:
  sub $16, %rsi
  mov %rcx, (%rsi)
  mov %r8, 8(%rsi)
  xor %r10d, %r10d
  xor %r8d, %r8d
  mov $56, %eax
  syscall
  test %rax, %rax
  jz 1f
  ret
1:
  xor %ebp, %ebp
  pop %rax
  pop %rdi
  call *%rax
  ud2
  .size isogate_clone, . - isogate_clone
  .popsection
)");
#elif defined(__aarch64__)
asm(R"(
  .pushsection .text
  .hidden isogate_clone3
  .globl isogate_clone3
  .type isogate_clone3, %function
isogate_clone3:
  mov x8, #435
  svc #0
  cbz x0, 1f
  ret
1:
  mov x29, #0
  mov x0, x3
  blr x2
  brk #0
  .size isogate_clone3, . - isogate_clone3

  .hidden isogate_clone
  .globl isogate_clone
  .type isogate_clone, %function
isogate_clone:
  stp x3, x4, [x1, #-16]!
  mov x3, #0
  mov x4, #0
  mov x8, #220
  svc #0
  cbz x0, 1f
  ret
1:
  mov x29, #0
  ldp x3, x0, [sp], #16
  blr x3
  brk #0
  .size isogate_clone, . - isogate_clone
  .popsection
)");
#endif

namespace isogate {

long raw_clone(const CloneRequest& request) {
  clone_args arguments = {};
  arguments.flags = request.flags;
  arguments.exit_signal = static_cast<uint64_t>(request.exit_signal);
  arguments.stack = reinterpret_cast<uint64_t>(request.stack);
  arguments.stack_size = request.stack_size;
  if (request.pidfd != nullptr) {
    arguments.flags |= CLONE_PIDFD;
    arguments.pidfd = reinterpret_cast<uint64_t>(request.pidfd);
  }
  if (request.leaf_fd >= 0) {
    arguments.flags |= CLONE_INTO_CGROUP;
    arguments.cgroup = static_cast<uint64_t>(request.leaf_fd);
  }
  const bool clear = request.handlers_cleared != nullptr;
  if (clear) {
    *request.handlers_cleared = true;
    arguments.flags |= CLONE_CLEAR_SIGHAND;
  }
  long child = isogate_clone3(&arguments, sizeof arguments, request.entry, request.argument);
  if (clear && (child == -EINVAL || child == -ENOSYS)) {
    *request.handlers_cleared = false;
    arguments.flags = arguments.flags & ~CLONE_CLEAR_SIGHAND;
    if (child == -EINVAL)
      child = isogate_clone3(&arguments, sizeof arguments, request.entry, request.argument);
  }
  if (child != -ENOSYS || request.leaf_fd >= 0) return child;
  char* const top = static_cast<char*>(request.stack) + request.stack_size;
  return isogate_clone(arguments.flags | arguments.exit_signal, top, request.pidfd, request.entry,
                       request.argument);
}

long raw_run_child(const CloneRequest& request) {
  uint64_t mask = 0;
  raw::block_signals(&mask);
  const long child = raw_clone(request);
  raw::restore_signals(&mask);
  if (child < 0) return child;
  while (raw::call(SYS_wait4, child, 0, __WALL, 0) == -EINTR) {
  }
  return child;
}

}  // namespace isogate
