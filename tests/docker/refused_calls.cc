// Run in a container by a tenant: prints the name of each system call that was served, although none should
// be.
#include <errno.h>
#include <linux/filter.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <initializer_list>

namespace {

void served(const char* name) { std::printf("%s\n", name); }

bool refused(long result) {
  return result < 0 && (errno == EPERM || errno == ENOSYS || errno == EAFNOSUPPORT);
}

template <typename Call>
bool dies(Call call) {
  std::fflush(stdout);
  const pid_t child = ::fork();
  if (child == 0) {
    call();
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFSIGNALED(status);
}

}  // namespace

int main() {
  for (const int type : {SOCK_STREAM, SOCK_DGRAM})
    if (!refused(::socket(40 /* AF_VSOCK */, type, 0))) served("AF_VSOCK");
  char ring[512] = {};
  if (!refused(::syscall(SYS_io_uring_setup, 1, ring))) served("io_uring_setup");
  sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  sock_fprog program{1, &allow};
  if (!refused(::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program)))
    served("seccomp listener");
  if (!refused(::socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE))) served("NETLINK_ROUTE");
  if (!refused(::setsockopt(0, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program)))
    served("SO_ATTACH_FILTER");
  if (!refused(::socket(AF_NETLINK, SOCK_RAW, NETLINK_XFRM))) served("NETLINK_XFRM");
  if (!refused(::socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER))) served("NETLINK_NETFILTER");
  char descriptor[16] = {};
  if (!refused(::syscall(SYS_memfd_secret, 0))) served("memfd_secret");
  if (!refused(::syscall(SYS_memfd_create, "", 4 /* MFD_HUGETLB */))) served("huge pages");
#if defined(__x86_64__)
  const long changed = static_cast<int>(::syscall(SYS_modify_ldt, 1, descriptor, sizeof descriptor));
  if (changed >= 0 || (errno != EPERM && errno != ENOSYS)) served("modify_ldt");
  const auto old_getpid = [] {
    long result = 20;
    asm volatile("int $0x80" : "+a"(result) : : "memory", "r8", "r9", "r10", "r11");
    if (result < 0) ::raise(SIGSYS);  // this kernel does not have it
  };
  if (!dies(old_getpid)) served("int80");
  if (!dies([] {
        if (::syscall(0x40000000L + SYS_getpid) < 0) ::raise(SIGSYS);
      }))
    served("x32");
#else
  (void)descriptor;
#endif
  if (!refused(::syscall(SYS_ptrace, 0x4206 /* SEIZE */, 1, 0, 0))) served("ptrace");
  return 0;
}
