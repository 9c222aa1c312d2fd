#include "tests/local/injector.h"

#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

namespace isogate::test {
namespace {

// The system calls of opening, running and ending a sandbox. Left out are those that do not fail on a healthy
// kernel and are not checked (close), those that a test's own threads also make (read, write), and waits.
constexpr int kCalls[] = {
    SYS_openat,
    SYS_openat2,
    SYS_mkdirat,
    SYS_renameat2,
    SYS_unlinkat,
    SYS_fchown,
    SYS_fchownat,
    SYS_fchmod,
    SYS_fchmodat,
    SYS_mknodat,
    SYS_symlinkat,
    SYS_newfstatat,
    SYS_fstat,
    SYS_statx,
    SYS_getdents64,
    SYS_lseek,
    SYS_fcntl,
    SYS_flock,
    SYS_mount,
    SYS_umount2,
    SYS_pivot_root,
    SYS_chroot,
    SYS_fchdir,
    SYS_chdir,
    SYS_setns,
    SYS_unshare,
    SYS_sethostname,
    SYS_clone,
    SYS_clone3,
    SYS_execveat,
    SYS_setresuid,
    SYS_setresgid,
    SYS_setgroups,
    SYS_capset,
    SYS_capget,
    SYS_prctl,
    SYS_seccomp,
    SYS_prlimit64,
    SYS_keyctl,
    SYS_memfd_create,
    SYS_socketpair,
    SYS_socket,
    SYS_connect,
    SYS_sendmsg,
    SYS_sendto,
    SYS_recvfrom,
    SYS_recvmsg,
    SYS_close_range,
    SYS_dup3,
    SYS_pidfd_open,
    SYS_getresuid,
    SYS_getresgid,
    SYS_readlinkat,
    SYS_open_tree,
    SYS_move_mount,
    SYS_fsopen,
    SYS_fsmount,
    SYS_fsconfig,
    SYS_mount_setattr,
    SYS_landlock_create_ruleset,
    SYS_landlock_add_rule,
    SYS_landlock_restrict_self,
};

std::vector<sock_filter> filter() {
  std::vector<sock_filter> code = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int number : kCalls) {
    code.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(number), 0, 1));
    code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF));
  }
  code.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  return code;
}

// A thread is the test's own, or one that a backend starts once.
bool starts_a_thread(const seccomp_data& call) {
  if (call.nr == SYS_clone) return (call.args[0] & CLONE_THREAD) != 0;
  if (call.nr != SYS_clone3) return false;
  return (reinterpret_cast<const clone_args*>(call.args[0])->flags & CLONE_THREAD) != 0;
}

// A file call's end, where the process ends if it fails.
bool raises_capabilities(const seccomp_data& call) {
  if (call.nr != SYS_capset) return false;
  const auto* sets = reinterpret_cast<const __user_cap_data_struct*>(call.args[1]);
  return (sets[0].effective | sets[1].effective) != 0;
}

}  // namespace

void Injector::arm(int nth, int error) {
  count_ = 0;
  failed_ = -1;
  nth_ = nth;
  error_ = error;
  armed_ = true;
}

int Injector::disarm() {
  armed_ = false;
  return count_;
}

std::string Injector::begin() {
  auto code = filter();
  const sock_fprog program = {static_cast<unsigned short>(code.size()), code.data()};
  if (::geteuid() != 0) ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  const long listener =
      ::syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
  if (listener < 0) return std::string("no seccomp listener here: ") + std::strerror(errno);
  listener_ = static_cast<int>(listener);
  return "";
}

void Injector::answer() {
  while (listener_ < 0 && !over_) ::usleep(1000);
  while (!over_) {
    pollfd slot = {listener_, POLLIN, 0};
    if (::poll(&slot, 1, 50) != 1) continue;
    seccomp_notif asked = {};
    if (::ioctl(listener_, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
    seccomp_notif_resp reply = {asked.id, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    if (armed_ && !starts_a_thread(asked.data) && !raises_capabilities(asked.data) && ++count_ == nth_) {
      failed_ = asked.data.nr;
      reply.error = -error_;
      reply.flags = 0;
    }
    ::ioctl(listener_, SECCOMP_IOCTL_NOTIF_SEND, &reply);
  }
  if (listener_ >= 0) ::close(listener_);
}

std::string Injector::around(const std::function<void(Injector&)>& work) {
  Injector injector;
  std::string obstacle;
  std::thread answering([&] { injector.answer(); });
  std::thread working([&] {
    obstacle = injector.begin();
    if (obstacle.empty()) work(injector);
  });
  working.join();
  injector.over_ = true;
  answering.join();
  return obstacle;
}

}  // namespace isogate::test
