// Raw code: see raw_syscall.h. What a program goes through between clone and exec.
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include <cerrno>
#include <climits>

#include "runner/raw_syscall.h"
#include "runner/spawn.h"

namespace isogate {
namespace {

struct Birth {
  const SpawnPlan* plan;
  long parent;
};

[[noreturn]] void give_up(const SpawnPlan& plan, long error) {
  plan.report->os_errno = static_cast<int32_t>(-error);
  for (;;) raw::call(SYS_exit_group, 127);
}

void check(const SpawnPlan& plan, long result) {
  if (result < 0) give_up(plan, result);
}

void join_groups(const SpawnPlan& plan) {
  for (const int fd : plan.join_fds) {
    if (fd >= 0) check(plan, raw::call(SYS_write, fd, "0", 1));
  }
}

void reset_signals() {
  const uint64_t by_default[4] = {0, 0, 0, 0};  // struct sigaction of the kernel: SIG_DFL, no flags
  for (int signal = 1; signal <= 64; ++signal) {
    if (signal != SIGKILL && signal != SIGSTOP) raw::call(SYS_rt_sigaction, signal, by_default, 0, 8);
  }
}

void connect_streams(const SpawnPlan& plan) {
  int sources[3];
  for (int target = 0; target < 3; ++target) {
    sources[target] = plan.streams[target];
    if (sources[target] < 3) {  // about to be overwritten, or in place with close-on-exec set
      sources[target] = static_cast<int>(raw::call(SYS_fcntl, sources[target], F_DUPFD, 3));
      check(plan, sources[target]);
    }
  }
  for (int target = 0; target < 3; ++target) check(plan, raw::call(SYS_dup3, sources[target], target, 0));
}

void drop_capabilities(const SpawnPlan& plan) {
  for (long bit = 0; bit < 64; ++bit) {
    const long held = raw::call(SYS_prctl, PR_CAPBSET_READ, bit, 0, 0, 0);
    if (held == -EINVAL) break;
    if (held != 0) check(plan, raw::call(SYS_prctl, PR_CAPBSET_DROP, bit, 0, 0, 0));
  }
}

void change_identity(const SpawnPlan& plan) {
  plan.report->stage = kStagePrivileges;
  drop_capabilities(plan);
  plan.report->stage = kStageIdentity;
  check(plan, raw::call(SYS_setgroups, 0, 0));
  check(plan, raw::call(SYS_setresgid, plan.gid, plan.gid, plan.gid));
  check(plan, raw::call(SYS_setresuid, plan.uid, plan.uid, plan.uid));
  plan.report->stage = kStagePrivileges;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  check(plan, raw::call(SYS_capset, &header, none));
}

// After the identity: setresuid clears the signal. The parent is the thread or supervisor that waits
// for this program, so it never ends before it but by being killed.
void die_with_parent(const SpawnPlan& plan, long parent) {
  plan.report->stage = kStageParent;
  check(plan, raw::call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
  if (raw::call(SYS_getppid) != parent) give_up(plan, -ESRCH);
}

size_t length_until(const char* text, char end) {
  size_t length = 0;
  while (text[length] != '\0' && text[length] != end) ++length;
  return length;
}

// directory/name, where that is a path that the kernel takes. An empty element of PATH is the working
// directory.
bool join(char (&path)[PATH_MAX], const char* directory, size_t directory_size, const char* name,
          size_t name_size) {
  if (directory_size == 0) directory = ".", directory_size = 1;
  if (directory_size + name_size + 2 > sizeof path) return false;
  for (size_t i = 0; i < directory_size; ++i) path[i] = directory[i];
  path[directory_size] = '/';
  for (size_t i = 0; i <= name_size; ++i) path[directory_size + 1 + i] = name[i];
  return true;
}

// As execvp does it: the first that can be executed, and a path that is too long is no place to look.
long exec_found(const SpawnPlan& plan) {
  const char* const name = plan.argv[0];
  const size_t name_size = length_until(name, '\0');
  if (name_size > NAME_MAX) return -ENAMETOOLONG;
  bool refused = false;
  for (const char* rest = plan.search;; ++rest) {
    const size_t size = length_until(rest, ':');
    char path[PATH_MAX];
    if (join(path, rest, size, name, name_size)) {
      const long result = raw::call(SYS_execve, path, plan.argv, plan.envp);
      if (result == -EACCES) refused = true;
      if (result != -EACCES && result != -ENOENT && result != -ENOTDIR) return result;
    }
    rest += size;
    if (*rest == '\0') return refused ? -EACCES : -ENOENT;
  }
}

long exec_program(const SpawnPlan& plan) {
  if (plan.search != nullptr) return exec_found(plan);
  return raw::call(SYS_execve, plan.argv[0], plan.argv, plan.envp);
}

[[noreturn]] void born(void* argument) {
  const Birth& birth = *static_cast<const Birth*>(argument);
  const SpawnPlan& plan = *birth.plan;
  plan.report->stage = kStageGroup;
  join_groups(plan);
  plan.report->stage = kStageTerminal;
  check(plan, raw::call(SYS_setsid));
  if (plan.terminal) check(plan, raw::call(SYS_ioctl, plan.streams[0], TIOCSCTTY, 0));
  plan.report->stage = kStageStreams;
  connect_streams(plan);
  plan.report->stage = kStagePrivileges;
  reset_signals();
  raw::call(SYS_umask, 022);
  const rlimit64 no_core = {0, 0};
  check(plan, raw::call(SYS_prlimit64, 0, RLIMIT_CORE, &no_core, 0));
  const rlimit64 files = {plan.soft_files, plan.hard_files};
  check(plan, raw::call(SYS_prlimit64, 0, RLIMIT_NOFILE, &files, 0));
  check(plan, raw::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  if (plan.change_identity) change_identity(plan);
  die_with_parent(plan, birth.parent);
  plan.report->stage = kStageDirectory;
  if (plan.cwd_fd >= 0) check(plan, raw::call(SYS_fchdir, plan.cwd_fd));
  plan.report->stage = kStageStreams;
  if (plan.instead == nullptr) check(plan, raw::call(SYS_close_range, 3u, ~0u, 0));
  plan.report->stage = kStageExec;
  if (plan.instead != nullptr) plan.instead(plan.instead_argument);
  const uint64_t no_signal = 0;
  raw::restore_signals(&no_signal);
  give_up(plan, exec_program(plan));
}

}  // namespace

void raw_succeed(void*) {
  for (;;) raw::call(SYS_exit_group, 0);
}

long raw_spawn(const SpawnPlan& plan, int* pidfd, int* pid) {
  Birth birth = {&plan, raw::call(SYS_getpid)};
  plan.report->stage = kStageBorn;
  plan.report->os_errno = 0;
  CloneRequest request = {};
  request.flags = CLONE_VFORK | (plan.copy_memory ? 0 : CLONE_VM);
  request.exit_signal = plan.child_signal ? SIGCHLD : 0;
  request.leaf_fd = plan.leaf_fd;
  request.pidfd = pidfd;
  request.stack = plan.stack;
  request.stack_size = plan.stack_size;
  request.entry = born;
  request.argument = &birth;
  const long child = raw_clone(request);
  if (child < 0) {
    *pidfd = -1;  // the kernel may have left there what it has closed again
    return child;
  }
  *pid = static_cast<int>(child);
  return 0;
}

}  // namespace isogate
