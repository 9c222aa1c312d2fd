// Raw code: see raw_syscall.h. The steps between clone and exec that every child takes.
#pragma once

#include <fcntl.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <signal.h>

#include <cerrno>

#include "runner/exec/raw_syscall.h"
#include "runner/exec/spawn/program_steps.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate {

[[noreturn]] static inline void give_up(const SpawnPlan& plan, long error) {
  plan.report->os_errno = static_cast<int32_t>(-error);
  for (;;) raw::call(SYS_exit_group, 127);
}

static inline void check(const SpawnPlan& plan, long result) {
  if (result < 0) give_up(plan, result);
}

static inline void reset_signals(uint64_t signals) {
  const uint64_t by_default[4] = {0, 0, 0, 0};  // struct sigaction of the kernel: SIG_DFL, no flags
  for (int signal = 1; signal <= 64; ++signal) {
    const bool wanted = (signals >> (signal - 1) & 1) != 0 && signal != SIGKILL && signal != SIGSTOP;
    if (wanted) raw::call(SYS_rt_sigaction, signal, by_default, 0, 8);
  }
}

static inline void set_limits(const SpawnPlan& plan) {
  for (int i = 0; i < plan.limit_count; ++i) {
    const uint64_t values[2] = {plan.limits[i].soft, plan.limits[i].hard};  // struct rlimit64
    check(plan, raw::call(SYS_prlimit64, 0, plan.limits[i].resource, values, 0));
  }
}

// To 0, 1, 2 …: a source that would be overwritten, or is in place with close-on-exec set, is copied away.
template <int count>
void connect_streams(const SpawnPlan& plan, const int (&streams)[count]) {
  int sources[count];
  for (int target = 0; target < count; ++target) {
    sources[target] = streams[target];
    if (sources[target] < count) {
      sources[target] = static_cast<int>(raw::call(SYS_fcntl, sources[target], F_DUPFD, count));
      check(plan, sources[target]);
    }
  }
  for (int target = 0; target < count; ++target) check(plan, raw::call(SYS_dup3, sources[target], target, 0));
}

// `possible`: what may be in the bounding set.
static inline void drop_capabilities(const SpawnPlan& plan, uint64_t possible) {
  for (long bit = 0; bit < 64; ++bit) {
    if ((possible >> bit & 1) == 0) continue;
    const long dropped = raw::call(SYS_prctl, PR_CAPBSET_DROP, bit, 0, 0, 0);
    if (dropped == -EINVAL) break;  // the kernel has no more
    check(plan, dropped);
  }
}

static inline void clear_capabilities(const SpawnPlan& plan) {
  plan.report->stage = kStagePrivileges;
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
  check(plan, raw::call(SYS_capset, &header, none));
}

// Nothing of the host's session is possessed any more. Where the kernel has no keys, or a filter around this
// process refuses the calls on them, programs cannot use any either.
static inline void join_own_keyring(const SpawnPlan& plan) {
  plan.report->stage = kStagePrivileges;
  const long joined = raw::call(SYS_keyctl, 1 /* KEYCTL_JOIN_SESSION_KEYRING */, 0, 0, 0, 0);
  if (joined >= 0 || joined == -ENOSYS) return;
  const long found = raw::call(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -3 /* the session's */, 0, 0, 0);
  if (joined != -EPERM || found != -EPERM) give_up(plan, joined);
}

static inline void change_identity(const SpawnPlan& plan, uint64_t possible) {
  plan.report->stage = kStagePrivileges;
  drop_capabilities(plan, possible);
  plan.report->stage = kStageIdentity;
  check(plan, raw::call(SYS_setgroups, 0, 0));
  check(plan, raw::call(SYS_setresgid, plan.gid, plan.gid, plan.gid));
  check(plan, raw::call(SYS_setresuid, plan.uid, plan.uid, plan.uid));
  clear_capabilities(plan);
}

}  // namespace isogate
