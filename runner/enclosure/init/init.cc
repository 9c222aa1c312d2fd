// Raw code: see raw_syscall.h. The init of an enclosure: pid 1, static, without a libc. See init_protocol.h.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstddef>

#include "runner/enclosure/init/init.h"
#include "runner/enclosure/init_run.h"
#include "runner/exec/raw_syscall.h"
#include "runner/exec/spawn/exec_search.h"
#include "runner/exec/spawn/program_steps.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate {
namespace {

constexpr int kMostDescriptors = 3 + kInitMostJoins;

// Of /dev/shm: what is free in it, and its root, which changes with each entry that comes or goes.
struct Room {
  uint64_t blocks, files;
  int64_t changed_s;
  uint32_t changed_ns, mode, uid, gid;
  bool operator==(const Room&) const = default;
};

struct Init {
  Room room;    // before the first program
  int signals;  // a signalfd for SIGCHLD
  // Of one order:
  InitOrder order;
  char* body;
  char** pointers;  // into the body of a run
  uint64_t pointers_size;
  int descriptors[kMostDescriptors];
  long program;
  bool ended;
  InitReport report;
};

alignas(16) char child_stack[32 * 1024];

[[noreturn]] void leave(int code) {
  for (;;) raw::call(SYS_exit_group, code);
}

// All of it, or the init ends: without its host it has no purpose.
void receive(void* to, size_t size) {
  char* at = static_cast<char*>(to);
  while (size > 0) {
    const long got = raw::call(SYS_read, kInitSocket, at, size);
    if (got == -EINTR) continue;
    if (got <= 0) leave(1);
    at += got;
    size -= static_cast<size_t>(got);
  }
}

void send(const void* from, size_t size) {
  const char* at = static_cast<const char*>(from);
  while (size > 0) {
    const long sent = raw::call(SYS_sendto, kInitSocket, at, size, MSG_NOSIGNAL, 0, 0);
    if (sent == -EINTR) continue;
    if (sent <= 0) leave(1);
    at += sent;
    size -= static_cast<size_t>(sent);
  }
}

// The head of an order, with its descriptors, after an earlier one.
void receive_order(Init& init) {
  if (init.body != nullptr) raw::call(SYS_munmap, init.body, init.order.size);
  if (init.pointers != nullptr) raw::call(SYS_munmap, init.pointers, init.pointers_size);
  init.body = nullptr;
  init.pointers = nullptr;
  init.program = 0;
  init.ended = false;
  init.report = {};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMostDescriptors)];
  iovec vector = {&init.order, sizeof init.order};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  long got = 0;
  do {
    got = raw::call(SYS_recvmsg, kInitSocket, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
  } while (got == -EINTR);
  if (got != static_cast<long>(sizeof init.order) || (message.msg_flags & MSG_CTRUNC) != 0) leave(1);
  const cmsghdr* const head = reinterpret_cast<const cmsghdr*>(control);
  const size_t brought = message.msg_controllen == 0 ? 0 : (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
  if (brought != init.order.descriptors || brought > kMostDescriptors) leave(1);
  const int* const numbers = reinterpret_cast<const int*>(control + CMSG_LEN(0));
  for (size_t i = 0; i < brought; ++i) init.descriptors[i] = numbers[i];
}

// Memory of its own, all zero.
void* map(uint64_t size) {
  const long memory =
      raw::call(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory < 0 && memory > -4096) leave(1);
  return reinterpret_cast<void*>(memory);
}

void receive_body(Init& init) {
  if (init.order.size == 0 || init.order.size > kInitMostBytes) leave(1);
  init.body = static_cast<char*>(map(init.order.size));
  receive(init.body, init.order.size);
}

[[noreturn]] void refuse(Init& init, int stage, long error) {
  init.report.stage = stage;
  init.report.os_errno = static_cast<int32_t>(-error);
  init.report.alone = 1;
  send(&init.report, sizeof init.report);
  leave(0);
}

void join_groups(Init& init) {
  for (size_t i = 3; i < init.order.descriptors; ++i) {
    const long joined = raw::call(SYS_write, init.descriptors[i], "0", 1);
    if (joined < 0) refuse(init, kStageGroup, joined);
    raw::call(SYS_close, init.descriptors[i]);
  }
}

void be_unreachable() {
  raw::call(SYS_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
  uint64_t ignored = 0;
  raw::block_signals(&ignored);
}

FileMark mark_of(const char* path) {
  struct statx info = {};
  if (raw::call(SYS_statx, AT_FDCWD, path, 0, STATX_INO, &info) < 0) return {};
  return {uint64_t{info.stx_dev_major} << 32 | info.stx_dev_minor, info.stx_ino};
}

uint64_t all_capabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2];
  if (raw::call(SYS_capget, &header, sets) < 0) return ~uint64_t{0};
  uint64_t all = 0;
  for (int i = 0; i < 2; ++i)
    all |= uint64_t{sets[i].effective | sets[i].permitted | sets[i].inheritable} << (32 * i);
  for (long bit = 0; bit < 64; ++bit) {
    const long held = raw::call(SYS_prctl, PR_CAPBSET_READ, bit, 0, 0, 0);
    if (held == -EINVAL) break;
    if (held != 0) all |= uint64_t{1} << bit;
  }
  return all;
}

uint32_t one_id(long number) {
  uint32_t real = 0, effective = 1, saved = 2;
  if (raw::call(number, &real, &effective, &saved) < 0) return ~0u;
  return real == effective && effective == saved ? real : ~0u;
}

void prove_itself() {
  InitProof proof = {};
  for (int i = 0; i < 7; ++i) proof.namespaces[i] = mark_of(kNamespaces[i]).inode;
  proof.root = mark_of("/");
  proof.workspace = mark_of("/workspace");
  proof.capabilities = all_capabilities();
  proof.uid = one_id(SYS_getresuid);
  proof.gid = one_id(SYS_getresgid);
  proof.no_new_privs = static_cast<uint32_t>(raw::call(SYS_prctl, PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
  proof.seccomp_mode = static_cast<uint32_t>(raw::call(SYS_prctl, PR_GET_SECCOMP, 0, 0, 0, 0));
  send(&proof, sizeof proof);
}

// Nothing where it cannot be known.
Room room_in_shm() {
  struct statfs info = {};
  struct statx root = {};
  constexpr unsigned kWanted = STATX_MODE | STATX_UID | STATX_GID | STATX_CTIME;
  if (raw::call(SYS_statfs, "/dev/shm", &info) < 0 ||
      raw::call(SYS_statx, AT_FDCWD, "/dev/shm", 0, kWanted, &root) < 0 ||
      (root.stx_mask & kWanted) != kWanted)
    return {};
  return {info.f_bfree,  info.f_ffree, root.stx_ctime.tv_sec, root.stx_ctime.tv_nsec,
          root.stx_mode, root.stx_uid, root.stx_gid};
}

// Whether the last program has left nothing, in memory or in the kernel, that the next one would find. It has
// left no process: the init is alone.
bool has_nothing_left(const Init& init) {
  uint64_t pending = 0;
  if (raw::call(SYS_rt_sigpending, &pending, sizeof pending) < 0) return false;
  if ((pending & ~(uint64_t{1} << (SIGCHLD - 1))) != 0) return false;
  if (init.room.files == 0 || room_in_shm() != init.room) return false;
  shm_info memory = {};
  msginfo queues = {};
  seminfo semaphores = {};
  return raw::call(SYS_shmctl, 0, SHM_INFO, &memory) >= 0 && memory.used_ids == 0 &&
         raw::call(SYS_msgctl, 0, MSG_INFO, &queues) >= 0 && queues.msgpool == 0 &&
         raw::call(SYS_semctl, 0, 0, SEM_INFO, &semaphores) >= 0 && semaphores.semusz == 0;
}

void watch_children(Init& init) {
  if (init.signals >= 0) return;
  const uint64_t child = uint64_t{1} << (SIGCHLD - 1);
  init.signals = static_cast<int>(raw::call(SYS_signalfd4, -1, &child, 8, O_CLOEXEC | O_NONBLOCK));
  if (init.signals < 0) refuse(init, kStageInit, init.signals);
}

// Reaps what has ended. False: there is no child any more.
bool reap(Init& init) {
  for (;;) {
    int status = 0;
    rusage usage;
    const long pid = raw::call(SYS_wait4, -1, &status, WNOHANG | __WALL, &usage);
    if (pid <= 0) return pid != -ECHILD;
    init.report.cpu_ns += raw::nanoseconds(usage.ru_utime) + raw::nanoseconds(usage.ru_stime);
    const uint64_t peak = static_cast<uint64_t>(usage.ru_maxrss);
    if (peak > init.report.max_rss_kib) init.report.max_rss_kib = peak;
    if (pid != init.program) continue;
    init.ended = true;
    init.report.status = status;
    init.report.end_ns = raw::now_ns();
  }
}

void obey(const Init& init) {
  InitOrder order;
  receive(&order, sizeof order);
  if (order.kind == kInitSignal && order.size == 0) {
    raw::call(SYS_kill, -init.program, static_cast<long>(order.value));
  }
}

void wait_for_program(Init& init) {
  while (!init.ended) {
    pollfd slots[2] = {{kInitSocket, POLLIN, 0}, {init.signals, POLLIN, 0}};
    if (raw::call(SYS_ppoll, slots, 2, 0, 0, 8) < 0) continue;
    if ((slots[1].revents & POLLIN) != 0) {
      char signal[128];  // struct signalfd_siginfo
      raw::call(SYS_read, init.signals, signal, sizeof signal);
      reap(init);
    }
    if (!init.ended && slots[0].revents != 0) obey(init);
  }
}

// --- the program

struct Program {
  Init* init;
  InitStrings strings;
  volatile int32_t stage;
  volatile int32_t os_errno;
};

[[noreturn]] void give_up(Program& program, long error) {
  program.os_errno = static_cast<int32_t>(-error);
  leave(127);
}

void check(Program& program, long result) {
  if (result < 0) give_up(program, result);
}

// Relative: beneath the workspace, whatever links there are; absolute: like any path.
long enter_directory(const InitStrings& program) {
  if (program.head.cwd_beneath == 0) return raw::call(SYS_chdir, program.cwd);
  if (const long entered = raw::call(SYS_chdir, "/workspace"); entered < 0) return entered;
  if (program.cwd[0] == '\0') return 0;
  struct {
    uint64_t flags, mode, resolve;
  } how = {O_PATH | O_DIRECTORY | O_CLOEXEC, 0, 0x08 | 0x02 /* RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS */};
  const long directory = raw::call(SYS_openat2, AT_FDCWD, program.cwd, &how, sizeof how);
  return directory < 0 ? directory : raw::call(SYS_fchdir, directory);
}

[[noreturn]] void program_main(void* argument) {
  Program& program = *static_cast<Program*>(argument);
  const int* const streams = program.init->descriptors;
  program.stage = kStageTerminal;
  check(program, raw::call(SYS_setsid));
  if (program.strings.head.terminal != 0) check(program, raw::call(SYS_ioctl, streams[0], TIOCSCTTY, 0));
  program.stage = kStageStreams;
  for (int target = 0; target < 3; ++target) {
    check(program, raw::call(SYS_dup3, streams[target], target, 0));
  }
  program.stage = kStageDirectory;
  check(program, enter_directory(program.strings));
  check(program, raw_check_directory());
  program.stage = kStageStreams;
  check(program, raw::call(SYS_close_range, 3u, ~0u, 0));
  yield_to_reaper(kProgramNice);
  program.stage = kStageExec;
  const uint64_t no_signal = 0;
  raw::restore_signals(&no_signal);
  give_up(program, raw_exec(program.strings.search, program.strings.argv, program.strings.envp));
}

void lay_out(Init& init, InitStrings& strings) {
  if (init.order.descriptors < 3 || !raw_begin_run(init.body, init.order.size, strings)) leave(1);
  init.pointers_size = strings.pointers * sizeof(char*);
  init.pointers = static_cast<char**>(map(init.pointers_size));
  if (!raw_lay_out_run(init.body, init.order.size, init.pointers, strings)) leave(1);
}

long start(void (*entry)(void*), void* argument) {
  CloneRequest request = {};
  request.flags = CLONE_VM | CLONE_VFORK;
  request.exit_signal = SIGCHLD;
  request.leaf_fd = -1;
  request.stack = child_stack;
  request.stack_size = sizeof child_stack;
  request.entry = entry;
  request.argument = argument;
  return raw_clone(request);
}

void run(Init& init) {
  Program program = {};
  program.init = &init;
  lay_out(init, program.strings);
  join_groups(init);
  watch_children(init);
  init.program = start(program_main, &program);
  if (init.program < 0) refuse(init, kStageInit, init.program);
  init.report.stage = program.stage;
  init.report.os_errno = program.os_errno;
  for (int i = 0; i < 3; ++i) raw::call(SYS_close, init.descriptors[i]);
  wait_for_program(init);
  init.report.alone = reap(init) ? 0 : 1;
  init.report.waits = init.report.alone != 0 && has_nothing_left(init) ? 1 : 0;
  send(&init.report, sizeof init.report);
}

// --- evidence

void measure(Init& init) {
  InitPortrait& portrait = *static_cast<InitPortrait*>(map(sizeof(InitPortrait)));
  portrait.address_count = init.order.size / static_cast<uint32_t>(sizeof(InitAddress));
  if (portrait.address_count > kInitMostAddresses) leave(1);
  for (uint32_t i = 0; i < portrait.address_count; ++i) {
    portrait.addresses[i] = reinterpret_cast<const InitAddress*>(init.body)[i];
  }
  watch_children(init);
  init.program = start(raw_measure_inside, &portrait);
  if (init.program < 0) refuse(init, kStageInit, init.program);
  wait_for_program(init);
  init.report.alone = reap(init) ? 0 : 1;
  init.report.stage = kStageExec;
  send(&init.report, sizeof init.report);
  send(&portrait, sizeof portrait);
}

}  // namespace

void init_main() {
  Init init = {};
  init.signals = -1;
  be_unreachable();
  init.room = room_in_shm();
  do {
    prove_itself();
    do {
      receive_order(init);
    } while (init.order.kind == kInitSignal);  // for a program that has ended
    if (init.order.size > 0) receive_body(init);
    if (init.order.kind == kInitRun) run(init);
    if (init.order.kind == kInitMeasure) measure(init);
  } while (init.report.waits != 0);
  leave(0);
}

}  // namespace isogate

extern "C" [[noreturn]] void isogate_init() {
  isogate::init_main();
  for (;;) isogate::raw::call(SYS_exit_group, 0);
}

// The kernel leaves argc at the stack pointer, 16-byte aligned; this never returns.
#if defined(__x86_64__)
asm(".globl _start\n_start:\n  xor %ebp, %ebp\n  call isogate_init\n  ud2\n");
#elif defined(__aarch64__)
asm(".globl _start\n_start:\n  mov x29, #0\n  bl isogate_init\n  brk #0\n");
#endif

// The compiler may call these, whatever its options.
extern "C" void* memcpy(void* to, const void* from, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<volatile char*>(to)[i] = static_cast<const char*>(from)[i];
  return to;
}
extern "C" void* memset(void* to, int value, size_t size) {
  for (size_t i = 0; i < size; ++i) static_cast<volatile char*>(to)[i] = static_cast<char>(value);
  return to;
}
