// What a forked child of root changes for itself alone. False: that cannot be done here.
#pragma once

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

namespace isogate::test {

// By their bits.
inline bool drop_capabilities(uint32_t dropped) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return false;
  data[0].effective &= ~dropped;
  data[0].permitted &= ~dropped;
  return ::syscall(SYS_capset, &header, data) == 0;
}

inline bool own_mounts() {
  return ::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0;
}

// fs.suid_dumpable reads as 1, with which every program may trace what changes its user.
inline bool own_suid_dumpable() {
  char path[] = "/tmp/isogate-dumpable-XXXXXX";
  const int file = ::mkostemp(path, O_CLOEXEC);
  const bool reads_1 = ::write(file, "1\n", 2) == 2 && own_mounts() &&
                       ::mount(path, "/proc/sys/fs/suid_dumpable", nullptr, MS_BIND, nullptr) == 0;
  ::close(file);
  ::unlink(path);
  return reads_1;
}

// A /proc that hides the processes of other users (hidepid of proc(5)), without the capability to see them.
inline bool own_hiding_proc(int hidepid) {
  const std::string options = "hidepid=" + std::to_string(hidepid) + ",gid=54321";
  return own_mounts() && ::mount("proc", "/proc", "proc", 0, options.c_str()) == 0 &&
         drop_capabilities(1U << CAP_SYS_PTRACE);
}

}  // namespace isogate::test
