#include "gateway/base/front_filter.h"

#include <sched.h>
#include <seccomp.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "gateway/base/privileges.h"
#include "gateway/base/process_status.h"

namespace isogate {
namespace {

using enum FilterAction;
using enum FilterWhen;

constexpr FilterRule kRules[] = {
    {"acct", kRefuse, "process accounting of the whole host"},
    {"add_key", kRefuse, "kernel keyrings are shared with other processes, and a frequent source of bugs"},
    {"adjtimex", kRefuse, "sets the host's clock"},
    {"bpf", kRefuse, "loads code into the kernel"},
    {"chroot", kRefuse, "changes the view of the file system"},
    {"clock_adjtime", kRefuse, "sets the host's clock"},
    {"clock_settime", kRefuse, "sets the host's clock"},
    {"clone", kRefuse, "a new process; threads have CLONE_THREAD", kFirstLacks, CLONE_THREAD},
    {"clone", kRefuse, "a new cgroup namespace", kFirstHas, CLONE_NEWCGROUP},
    {"clone", kRefuse, "a new IPC namespace", kFirstHas, CLONE_NEWIPC},
    {"clone", kRefuse, "a new network namespace", kFirstHas, CLONE_NEWNET},
    {"clone", kRefuse, "a new mount namespace", kFirstHas, CLONE_NEWNS},
    {"clone", kRefuse, "a new pid namespace", kFirstHas, CLONE_NEWPID},
    {"clone", kRefuse, "a new user namespace, and all capabilities in it", kFirstHas, CLONE_NEWUSER},
    {"clone", kRefuse, "a new host name namespace", kFirstHas, CLONE_NEWUTS},
    {"clone3", kAbsent, "its flags lie in memory, where a filter cannot look"},
    {"delete_module", kKill, "kernel modules"},
    {"execve", kKill, "the front runs no program"},
    {"execveat", kKill, "the front runs no program"},
    {"fanotify_init", kRefuse, "watches files of others"},
    {"finit_module", kKill, "kernel modules"},
    {"fork", kRefuse, "a new process"},
    {"fsconfig", kRefuse, "mounts"},
    {"fsmount", kRefuse, "mounts"},
    {"fsopen", kRefuse, "mounts"},
    {"fspick", kRefuse, "mounts"},
    {"init_module", kKill, "kernel modules"},
    {"io_uring_enter", kRefuse, "system calls that no filter sees"},
    {"io_uring_register", kRefuse, "system calls that no filter sees"},
    {"io_uring_setup", kRefuse, "system calls that no filter sees"},
    {"ioperm", kRefuse, "hardware ports"},
    {"iopl", kRefuse, "hardware ports"},
    {"kcmp", kRefuse, "looks into other processes"},
    {"kexec_file_load", kKill, "another kernel"},
    {"kexec_load", kKill, "another kernel"},
    {"keyctl", kRefuse, "kernel keyrings"},
    {"lookup_dcookie", kRefuse, "for profilers only"},
    {"migrate_pages", kRefuse, "memory of other processes"},
    {"modify_ldt", kRefuse, "16-bit segments; a frequent source of kernel bugs"},
    {"mount", kRefuse, "mounts"},
    {"mount_setattr", kRefuse, "mounts"},
    {"move_mount", kRefuse, "mounts"},
    {"move_pages", kRefuse, "memory of other processes"},
    {"name_to_handle_at", kRefuse, "the first half of opening files by handle, past directories"},
    {"nfsservctl", kRefuse, "removed from kernels long ago"},
    {"open_by_handle_at", kRefuse, "opens files past the directories that guard them"},
    {"open_tree", kRefuse, "mounts"},
    {"open_tree_attr", kRefuse, "mounts", kAlways, 0, 467},
    {"perf_event_open", kRefuse, "measures others; a frequent source of kernel bugs"},
    {"personality", kRefuse, "switches off address randomisation and other protections"},
    {"pidfd_getfd", kRefuse, "takes descriptors from another process"},
    {"pivot_root", kRefuse, "mounts"},
    {"process_madvise", kRefuse, "memory of other processes"},
    {"process_vm_readv", kKill, "reads the memory of another process"},
    {"process_vm_writev", kKill, "writes the memory of another process"},
    {"ptrace", kKill, "takes over another process"},
    {"quotactl", kRefuse, "disk quotas of the host"},
    {"quotactl_fd", kRefuse, "disk quotas of the host"},
    {"reboot", kKill, "the host's power switch"},
    {"request_key", kRefuse, "kernel keyrings; may start a helper program of the kernel's"},
    {"rt_sigaction", kKill, "another handler of SIGSYS: the report of a forbidden call would be lost",
     kFirstIs, SIGSYS},
    {"setdomainname", kRefuse, "the host's name"},
    {"sethostname", kRefuse, "the host's name"},
    {"setns", kRefuse, "enters another process's namespaces"},
    {"settimeofday", kRefuse, "sets the host's clock"},
    {"socket", kNoFamily, "raw packets, kernel crypto, vsock and others that no part of the front uses",
     kFirstAtLeast, AF_PACKET},
    {"swapoff", kRefuse, "the host's swap"},
    {"swapon", kRefuse, "the host's swap"},
    {"syslog", kRefuse, "the kernel's log, with its addresses"},
    {"umount2", kRefuse, "mounts"},
    {"unshare", kRefuse, "new namespaces, and all capabilities in a user namespace"},
    {"userfaultfd", kRefuse, "holds the kernel in mid-copy: a tool for exploits"},
    {"vfork", kRefuse, "a new process"},
    {"vhangup", kRefuse, "other people's terminals"},
};

struct FilterDeleter {
  void operator()(void* filter) const { seccomp_release(filter); }
};
using Filter = std::unique_ptr<std::remove_pointer_t<scmp_filter_ctx>, FilterDeleter>;

uint32_t action_of(FilterAction action, OnKill on_kill) {
  switch (action) {
    case kKill:
      return on_kill == OnKill::kReportAndDie ? SCMP_ACT_TRAP : SCMP_ACT_KILL_PROCESS;
    case kRefuse:
      return SCMP_ACT_ERRNO(EPERM);
    case kAbsent:
      return SCMP_ACT_ERRNO(ENOSYS);
    case kNoFamily:
      return SCMP_ACT_ERRNO(EAFNOSUPPORT);
  }
  return SCMP_ACT_KILL_PROCESS;
}

int add(scmp_filter_ctx filter, const FilterRule& rule, int number, OnKill on_kill) {
  const uint32_t action = action_of(rule.action, on_kill);
  scmp_arg_cmp compare{};
  switch (rule.when) {
    case kAlways:
      return seccomp_rule_add_array(filter, action, number, 0, nullptr);
    case kFirstHas:
      compare = SCMP_A0_64(SCMP_CMP_MASKED_EQ, rule.value, rule.value);
      break;
    case kFirstLacks:
      compare = SCMP_A0_64(SCMP_CMP_MASKED_EQ, rule.value, 0);
      break;
    case kFirstAtLeast:  // a 32-bit argument: the kernel ignores the upper half
      compare = SCMP_A0_32(SCMP_CMP_GE, static_cast<uint32_t>(rule.value));
      break;
    case kFirstIs:
      compare = SCMP_A0_32(SCMP_CMP_EQ, static_cast<uint32_t>(rule.value));
      break;
  }
  return seccomp_rule_add_array(filter, action, number, 1, &compare);
}

Result<void> add_all(scmp_filter_ctx filter, std::span<const FilterRule> rules, OnKill on_kill) {
  for (const FilterRule& rule : rules) {
    const int number = rule.number >= 0 ? rule.number : seccomp_syscall_resolve_name(rule.system_call);
    if (number == __NR_SCMP_ERROR)
      return Error{ISOGATE_INTERNAL, 0,
                   std::string("cannot filter the system call `") + rule.system_call +
                       "`: this libseccomp does not know it"};
    if (const int failed = add(filter, rule, number, on_kill); failed != 0)
      return os_error(std::string("cannot add `") + rule.system_call + "` to the system call filter",
                      -failed);
  }
  return {};
}

Result<void> set_attributes(scmp_filter_ctx filter) {
  const std::array<std::pair<scmp_filter_attr, uint32_t>, 4> attributes{{
      {SCMP_FLTATR_CTL_NNP, 1},
      {SCMP_FLTATR_CTL_TSYNC, 1},
      {SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS},
      {SCMP_FLTATR_CTL_OPTIMIZE, 2},  // a binary tree: about the same cost for each call
  }};
  for (const auto& [attribute, value] : attributes)
    if (const int failed = seccomp_attr_set(filter, attribute, value); failed != 0)
      return os_error("cannot set up the system call filter", -failed);
  return {};
}

// What the handler reads; complete before it is installed.
struct Report {
  int system_call;
  std::string record;
};
std::vector<Report> reports;
int report_socket = -1;

// SA_RESETHAND has put the default back: the second SIGSYS ends the process, as does one in another thread.
void report_and_die(int, siginfo_t* info, void*) {
  for (const Report& report : reports)
    if (report.system_call == info->si_syscall)
      (void)::send(report_socket, report.record.data(), report.record.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  (void)::syscall(SYS_tgkill, ::getpid(), ::gettid(), SIGSYS);
  ::_exit(128 + SIGSYS);
}

Result<void> prepare_report(const ViolationReport& report) {
  report_socket = report.socket;
  for (const FilterRule& rule : kRules)
    if (rule.action == kKill)
      reports.push_back({seccomp_syscall_resolve_name(rule.system_call), report.record_of(rule.system_call)});
  struct sigaction action {};
  action.sa_sigaction = report_and_die;
  action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_NODEFER;
  if (::sigaction(SIGSYS, &action, nullptr) != 0)
    return os_error("cannot install a handler of SIGSYS", errno);
  return {};
}

}  // namespace

std::span<const FilterRule> front_filter_rules() { return kRules; }

Result<void> install_filter(std::span<const FilterRule> rules, OnKill on_kill) {
  const Filter filter(seccomp_init(SCMP_ACT_ALLOW));
  if (!filter) return Error{ISOGATE_INTERNAL, 0, "cannot make a system call filter: out of memory"};
  if (auto set = set_attributes(filter.get()); !set) return set;
  if (auto added = add_all(filter.get(), rules, on_kill); !added) return added;
  if (const int failed = seccomp_load(filter.get()); failed != 0)
    return os_error("cannot install the system call filter; does this kernel have CONFIG_SECCOMP_FILTER?",
                    -failed);
  auto status = read_process_status();
  if (!status) return status.error();
  if (status->seccomp != 2 || !status->no_new_privs)
    return Error{ISOGATE_INTERNAL, 0, "the system call filter was loaded, but is not in force"};
  return {};
}

Result<void> install_front_filter(const ViolationReport& report) {
  if (report.socket < 0) return install_filter(front_filter_rules());
  if (auto prepared = prepare_report(report); !prepared) return prepared;
  return install_filter(front_filter_rules(), OnKill::kReportAndDie);
}

}  // namespace isogate
