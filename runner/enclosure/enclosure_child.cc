// Raw code: see raw_syscall.h. From a child that shares the host's memory to the init of an enclosure.
//
// The order matters: namespaces and mounts while there is privilege, Landlock while its descriptor is open;
// then limits and the filter, while there is still the capability by which the kernel compiles it whatever
// other programs' filters take; identity and capabilities last.
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <sys/mount.h>

#include "runner/enclosure/enclosure_plan.h"
#include "runner/enclosure/init_protocol.h"
#include "runner/exec/spawn/spawn_steps.h"

namespace isogate {
namespace {

constexpr unsigned long kNothing = MS_NOSUID | MS_NODEV | MS_NOEXEC;

// When memory runs out, the kernel then kills a tenant's program before a process of the host.
void be_the_first_victim() {
  const long file = raw::call(SYS_openat, AT_FDCWD, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
  if (file < 0) return;
  raw::call(SYS_write, file, "500", 3);
  raw::call(SYS_close, file);
}

void enter_namespaces(const SpawnPlan& plan, const EnclosurePlan& place) {
  plan.report->stage = kStageNamespaces;
  check(plan, raw::call(SYS_setns, place.mounts_fd, CLONE_NEWNS));
  if (place.cgroups_fd >= 0) check(plan, raw::call(SYS_setns, place.cgroups_fd, CLONE_NEWCGROUP));
  check(plan, raw::call(SYS_unshare, CLONE_NEWNS | (place.cgroups_fd < 0 ? CLONE_NEWCGROUP : 0)));
  check(plan, raw::call(SYS_setns, place.network_fd, CLONE_NEWNET));
  check(plan, raw::call(SYS_sethostname, kEnclosureHostName, sizeof kEnclosureHostName - 1));
}

// /proc is read-only as a whole: /proc/sys, sysrq-trigger and the like with it.
void mount_own(const SpawnPlan& plan, const EnclosurePlan& place) {
  plan.report->stage = kStageMounts;
  check(plan, raw::call(SYS_mount, "proc", "/proc", "proc", kNothing | MS_RDONLY, "hidepid=2"));
  check(plan, raw::call(SYS_mount, "shm", "/dev/shm", "tmpfs", kNothing, place.shm_options));
  for (size_t i = 0; i < place.cover_count; ++i) {
    check(plan, raw::call(SYS_mount, place.covers[i].by, place.covers[i].path, 0, MS_BIND, 0));
  }
}

void limit(const SpawnPlan& plan) {
  plan.report->stage = kStagePrivileges;
  raw::call(SYS_umask, 022);
  set_limits(plan);
  join_own_keyring(plan);
}

// No mount is possible once this is in force.
void confine(const SpawnPlan& plan, const EnclosurePlan& place) {
  plan.report->stage = kStageFilter;
  if (place.landlock_fd >= 0) check(plan, raw::call(SYS_landlock_restrict_self, place.landlock_fd, 0));
}

struct Bridge {
  const CloneRequest* request;
  int user_fd;
  long result;
};

[[noreturn]] void cross(void* argument) {
  Bridge& bridge = *static_cast<Bridge*>(argument);
  bridge.result = raw::call(SYS_setns, bridge.user_fd, CLONE_NEWUSER);
  if (bridge.result == 0) bridge.result = raw_clone(*bridge.request);
  for (;;) raw::call(SYS_exit_group, 0);
}

}  // namespace

long raw_clone_in_user_namespace(const CloneRequest& request, int user_fd, void* stack, size_t stack_size) {
  CloneRequest child = request;
  child.flags |= CLONE_PARENT;
  Bridge bridge = {&child, user_fd, -ECHILD};
  CloneRequest first = {};
  first.flags = CLONE_VM | CLONE_VFORK | CLONE_FILES;  // so that this process gets the pidfd
  first.stack = stack;
  first.stack_size = stack_size;
  first.entry = cross;
  first.argument = &bridge;
  const long bridge_pid = raw_run_child(first);
  return bridge_pid < 0 ? bridge_pid : bridge.result;
}

void raw_enter_enclosure(const SpawnPlan& plan, uint64_t reset) {
  const EnclosurePlan& place = *plan.enclosure;
  be_the_first_victim();
  enter_namespaces(plan, place);
  mount_own(plan, place);
  confine(plan, place);
  plan.report->stage = kStageStreams;
  static_assert(kInitSocket == 3);
  const int descriptors[5] = {plan.streams[0], plan.streams[1], plan.streams[2], plan.init_socket,
                              place.init_fd};
  connect_streams(plan, descriptors);
  check(plan, raw::call(SYS_close_range, 5u, ~0u, 0));
  check(plan, raw::call(SYS_fcntl, 4, F_SETFD, FD_CLOEXEC));
  reset_signals(reset);
  limit(plan);
  check(plan, raw::call(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
  plan.report->stage = kStageFilter;
  check(plan, raw::call(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, place.filter));
  plan.report->stage = kStageIdentity;
  if (plan.change_identity) {
    change_identity(plan, place.bounding);
  } else {
    drop_capabilities(plan, place.bounding);
    clear_capabilities(plan);
  }
  plan.report->stage = kStageParent;
  check(plan, raw::call(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0));
  plan.report->stage = kStageInit;
  const char* const argv[2] = {"init", nullptr};
  give_up(plan, raw::call(SYS_execveat, 4, "", argv, argv + 1, AT_EMPTY_PATH));
}

}  // namespace isogate
