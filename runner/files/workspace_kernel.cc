#include "runner/files/workspace_kernel.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <vector>

#include "runner/files/workspace_identity.h"
#include "runner/files/workspace_transfer.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr size_t kKernelBuffer = 64 << 10;  // some return everything at the first read, or nothing

constexpr std::array<uint32_t, 12> kKernelFilesystems = {
    PROC_SUPER_MAGIC,    SYSFS_MAGIC,    CGROUP_SUPER_MAGIC,
    CGROUP2_SUPER_MAGIC, DEBUGFS_MAGIC,  TRACEFS_MAGIC,
    SECURITYFS_MAGIC,    BPF_FS_MAGIC,   0x62656570 /* configfs */,
    PSTOREFS_MAGIC,      EFIVARFS_MAGIC, 0xf97cff8c /* selinuxfs */,
};

uint32_t filesystem_of(int file) {
  struct statfs info {};
  return ::fstatfs(file, &info) == 0 ? static_cast<uint32_t>(info.f_type) : 0;
}

bool may_read(const struct stat& info, const Identity& identity) {
  if (!identity.change) return true;
  if (info.st_uid == identity.uid) return (info.st_mode & S_IRUSR) != 0;
  if (info.st_gid == identity.gid) return (info.st_mode & S_IRGRP) != 0;
  return (info.st_mode & S_IROTH) != 0;
}

Error read_error(int code) {
  Error error = os_error("the kernel does not let it be read", code);
  if (error.status != ISOGATE_PERMISSION_DENIED) error.status = ISOGATE_NOT_REGULAR;
  return error;
}

}  // namespace

bool is_kernel_file(int file, const struct stat& info) {
  const uint32_t filesystem = filesystem_of(file);
  if (std::find(kKernelFilesystems.begin(), kKernelFilesystems.end(), filesystem) != kKernelFilesystems.end())
    return true;
  char byte = 0;
  struct stat now {};  // a regular file may have grown meanwhile
  return info.st_size == 0 && ::pread(file, &byte, 1, 0) > 0 && ::fstat(file, &now) == 0 && now.st_size == 0;
}

Result<isogate_entry> read_kernel_file(int file, const struct stat& info, const Identity& identity,
                                       const isogate_file_request& request, int cancel_fd) {
  const FsIdentity as_tenant(identity);
  if (as_tenant.error()) return *as_tenant.error();
  if (!may_read(info, identity)) return os_error("its mode does not allow it", EACCES);
  isogate_entry entry = entry_of(info);
  entry.size = ISOGATE_SIZE_UNKNOWN;
  std::vector<char> buffer(request.limit == 0 ? 0 : kKernelBuffer);
  for (uint64_t sent = 0, passed = 0; sent < request.limit;) {
    if (is_signalled(cancel_fd)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    const ssize_t got = ::read(file, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return read_error(errno);
    if (got == 0) {
      entry.size = passed;
      break;
    }
    const auto size = static_cast<uint64_t>(got);
    const uint64_t skipped = std::min(size, request.offset - std::min(request.offset, passed));
    const uint64_t part = std::min(size - skipped, request.limit - sent);
    if (auto wrote = pump_bytes({buffer.data() + skipped, part}, request.fd, cancel_fd); !wrote)
      return wrote.error();
    sent += part;
    passed += size;
  }
  return entry;
}

}  // namespace isogate
