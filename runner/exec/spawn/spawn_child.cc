// Raw code: see raw_syscall.h. What a program goes through between clone and exec.
#include <linux/sched.h>
#include <sys/ioctl.h>

#include "runner/enclosure/enclosure_plan.h"
#include "runner/exec/spawn/exec_search.h"
#include "runner/exec/spawn/spawn_steps.h"

namespace isogate {
namespace {

struct Birth {
  const SpawnPlan* plan;
  long parent;
  bool handlers_cleared;
};

void join_groups(const SpawnPlan& plan) {
  for (const int fd : plan.join_fds) {
    if (fd >= 0) check(plan, raw::call(SYS_write, fd, "0", 1));
  }
}

// After the identity: setresuid clears the signal. The parent is the thread or reaper that waits
// for this program, so it never ends before it but by being killed.
void die_with_parent(const SpawnPlan& plan, long parent) {
  plan.report->stage = kStageParent;
  check(plan, raw::call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
  if (raw::call(SYS_getppid) != parent) give_up(plan, -ESRCH);
}

[[noreturn]] void born(void* argument) {
  const Birth& birth = *static_cast<const Birth*>(argument);
  const SpawnPlan& plan = *birth.plan;
  const uint64_t signals = birth.handlers_cleared ? plan.ignored_signals : ~uint64_t{0};
  if (plan.enclosure != nullptr) raw_enter_enclosure(plan, signals);
  plan.report->stage = kStageGroup;
  join_groups(plan);
  plan.report->stage = kStageTerminal;
  check(plan, raw::call(SYS_setsid));
  if (plan.terminal) check(plan, raw::call(SYS_ioctl, plan.streams[0], TIOCSCTTY, 0));
  plan.report->stage = kStageStreams;
  connect_streams(plan, plan.streams);
  plan.report->stage = kStagePrivileges;
  reset_signals(signals);
  raw::call(SYS_umask, 022);
  set_limits(plan);
  check(plan, raw::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  if (plan.change_identity) {
    join_own_keyring(plan);
    change_identity(plan, plan.bounding);
  }
  die_with_parent(plan, birth.parent);
  plan.report->stage = kStageDirectory;
  if (plan.cwd_fd >= 0) {
    check(plan, raw::call(SYS_fchdir, plan.cwd_fd));
    check(plan, raw_check_directory());
  }
  plan.report->stage = kStageStreams;
  if (plan.instead == nullptr) check(plan, raw::call(SYS_close_range, 3u, ~0u, 0));
  yield_to_reaper(plan.nice);
  plan.report->stage = kStageExec;
  if (plan.instead != nullptr) plan.instead(plan.instead_argument);
  const uint64_t no_signal = 0;
  raw::restore_signals(&no_signal);
  give_up(plan, raw_exec(plan.search, plan.argv, plan.envp));
}

}  // namespace

void raw_succeed(void*) {
  for (;;) raw::call(SYS_exit_group, 0);
}

long raw_spawn(const SpawnPlan& plan, int* pidfd, int* pid) {
  Birth birth = {&plan, raw::call(SYS_getpid), false};
  plan.report->stage = kStageBorn;
  plan.report->os_errno = 0;
  CloneRequest request = {};
  request.flags = CLONE_VFORK | (plan.copy_memory ? 0 : CLONE_VM) | plan.namespaces;
  request.exit_signal = plan.child_signal ? SIGCHLD : 0;
  request.leaf_fd = plan.leaf_fd;
  request.pidfd = pidfd;
  request.stack = plan.stack;
  request.stack_size = plan.stack_size;
  request.entry = born;
  request.argument = &birth;
  request.handlers_cleared = &birth.handlers_cleared;
  const int user_fd = plan.enclosure != nullptr ? plan.enclosure->user_fd : -1;
  const long child = user_fd >= 0
                         ? raw_clone_in_user_namespace(request, user_fd, plan.bridge_stack, plan.stack_size)
                         : raw_clone(request);
  if (child < 0) {
    *pidfd = -1;  // the kernel may have left a closed descriptor's number there
    return child;
  }
  *pid = static_cast<int>(child);
  return 0;
}

}  // namespace isogate
