#include "runner/enclosure/syscall_check.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <vector>

#include "runner/enclosure/syscall_policy.h"

namespace isogate {
namespace {

struct Probe {
  const char* name;
  long number, a, b, c;
};

constexpr long kTypeIntoTerminalCall = 0x5412, kNoRandomAddresses = 0x0040000;

// Calls that the table refuses by their arguments.
constexpr Probe kProbes[] = {
    {"socket(AF_VSOCK)", SYS_socket, 40, SOCK_STREAM, 0},
    {"socket(AF_ALG)", SYS_socket, 38, SOCK_SEQPACKET, 0},
    {"socket(AF_NETLINK)", SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE},
    {"socket(AF_INET, SOCK_SEQPACKET)", SYS_socket, AF_INET, SOCK_SEQPACKET, 0},
    {"setsockopt(SO_ATTACH_FILTER)", SYS_setsockopt, -1, SOL_SOCKET, SO_ATTACH_FILTER},
    {"setsockopt(SO_ATTACH_REUSEPORT_CBPF)", SYS_setsockopt, -1, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF},
    {"socket(NETLINK_XFRM)", SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_XFRM},
    {"socket(NETLINK_NETFILTER)", SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER},
    {"seccomp(NEW_LISTENER)", SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, 0},
    {"clone(CLONE_NEWUSER)", SYS_clone, CLONE_NEWUSER | CLONE_THREAD, 0, 0},
    {"personality(ADDR_NO_RANDOMIZE)", SYS_personality, kNoRandomAddresses, 0, 0},
    {"ioctl(TIOCSTI)", SYS_ioctl, -1, kTypeIntoTerminalCall, 0},
    {"ioctl(TIOCSTI, 64 bits)", SYS_ioctl, -1, (1L << 32) | kTypeIntoTerminalCall, 0},
    {"ioctl(BTRFS_IOC_SNAP_CREATE_V2)", SYS_ioctl, -1, 0x50009417, 0},
    {"fcntl(F_SETPIPE_SZ)", SYS_fcntl, -1, F_SETPIPE_SZ, 4096},
    {"memfd_create(MFD_HUGETLB)", SYS_memfd_create, 0, MFD_HUGETLB, 0},
    {"shmget(SHM_HUGETLB)", SYS_shmget, 0, 0, SHM_HUGETLB},  // of no bytes: else EINVAL
};

bool refused(long number, long a, long b, long c) {
  errno = 0;
  if (::syscall(number, a, b, c, 0L, 0L, 0L) >= 0) return false;
  return errno == EPERM || errno == ENOSYS || errno == EAFNOSUPPORT;
}

#if defined(__x86_64__)

// With numbers of another architecture: a filter may kill the caller.
template <typename Call>
bool dies_or_fails(Call call) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(call() < 0 ? 0 : 1);
  int status = 0;
  while (child > 0 && ::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return child > 0 && !(WIFEXITED(status) && WEXITSTATUS(status) != 0);
}

long old_getpid() {
  long result = 20;  // __NR_getpid of i386
  asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
  return static_cast<int>(result);
}

#endif

}  // namespace

int report_open_syscalls() {
  std::vector<const char*> open;
  for (const SyscallRow& row : syscall_policy()) {
    if (row.verdict != SyscallVerdict::kRefuse && row.verdict != SyscallVerdict::kAbsent &&
        row.verdict != SyscallVerdict::kDebugOnly && row.verdict != SyscallVerdict::kByPointer)
      continue;
    for (const Syscall& each : row.calls)
      if (!refused(each.number, -1, 0, 0)) open.push_back(each.name);
  }
  for (const Probe& each : kProbes)
    if (!refused(each.number, each.a, each.b, each.c)) open.push_back(each.name);
#if defined(__x86_64__)
  if (!dies_or_fails(old_getpid)) open.push_back("int 0x80");
  if (!dies_or_fails([] { return ::syscall(0x40000000L + SYS_getpid); })) open.push_back("x32");
#endif
  for (const char* name : open) std::printf("%s\n", name);
  return open.empty() ? 0 : 10;
}

}  // namespace isogate
