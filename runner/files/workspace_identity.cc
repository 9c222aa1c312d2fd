#include "runner/files/workspace_identity.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <vector>

namespace isogate {
namespace {

constexpr uint32_t kAsk = UINT32_MAX;  // an invalid id changes nothing and returns the present one

uint32_t set_fsuid(uint32_t uid) { return static_cast<uint32_t>(::syscall(SYS_setfsuid, uid)); }
uint32_t set_fsgid(uint32_t gid) { return static_cast<uint32_t>(::syscall(SYS_setfsgid, gid)); }

bool has_group(gid_t gid, const Identity& identity) {
  if (identity.change) return gid == identity.gid;
  if (gid == ::getegid()) return true;
  const int count = ::getgroups(0, nullptr);
  std::vector<gid_t> groups(static_cast<size_t>(std::max(count, 0)));
  const int got = ::getgroups(static_cast<int>(groups.size()), groups.data());
  return got > 0 && std::find(groups.begin(), groups.begin() + got, gid) != groups.begin() + got;
}

}  // namespace

bool FsIdentity::set_capabilities(const CapabilitySets& sets) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  return ::syscall(SYS_capset, &header, sets.data()) == 0;
}

FsIdentity FsIdentity::of_this_process(bool change) {
  return FsIdentity({change, ::geteuid(), ::getegid()}, true);
}

FsIdentity::FsIdentity(const Identity& identity, bool capable) {
  if (!identity.change) return;
  if (::syscall(SYS_getgroups, 0, nullptr) != 0 && ::syscall(SYS_setgroups, 0, nullptr) != 0) {
    error_ = os_error("cannot give up the groups of this process", errno);
    return;
  }
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  if (::syscall(SYS_capget, &header, old_capabilities_.data()) != 0) {
    error_ = os_error("cannot read the capabilities of this thread", errno);
    return;
  }
  changed_ = true;
  old_gid_ = set_fsgid(identity.gid);
  old_uid_ = set_fsuid(identity.uid);
  if (set_fsgid(kAsk) != identity.gid || set_fsuid(kAsk) != identity.uid)
    error_ = Error{ISOGATE_INTERNAL, EPERM,
                   "cannot take the file identity of the sandbox: Operation not permitted"};
  CapabilitySets wanted = old_capabilities_;
  for (auto& half : wanted) half.effective = capable ? half.permitted : 0;
  capabilities_changed_ = set_capabilities(wanted);
  if (!capabilities_changed_) error_ = os_error("cannot change the capabilities of this thread", errno);
}

FsIdentity::~FsIdentity() {
  if (!changed_) return;
  set_fsuid(old_uid_);
  set_fsgid(old_gid_);
  if (set_fsuid(kAsk) != old_uid_ || set_fsgid(kAsk) != old_gid_) std::abort();
  if (capabilities_changed_ && !set_capabilities(old_capabilities_)) std::abort();
}

bool mode_lets_write(const struct stat& file, const Identity& identity) {
  const uid_t uid = identity.change ? identity.uid : ::geteuid();
  if (uid == 0 || uid == file.st_uid) return (file.st_mode & S_IWUSR) != 0;
  return (file.st_mode & (has_group(file.st_gid, identity) ? S_IWGRP : S_IWOTH)) != 0;
}

}  // namespace isogate
