#include "runner/files/workspace_resolve.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include <cerrno>

namespace isogate {
namespace {

constexpr int kMaxResolveTries = 32;  // of a path that is being renamed while it is resolved

int openat2(int dir, const char* path, int flags, uint64_t resolve_flags) {
  struct open_how how {};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  how.resolve = resolve_flags;
  for (int tries = 1;; ++tries) {
    const long fd = ::syscall(SYS_openat2, dir, path, &how, sizeof how);
    if (fd >= 0) return static_cast<int>(fd);
    if (errno == EINTR || (errno == EAGAIN && tries < kMaxResolveTries)) continue;
    return -errno;
  }
}

int open_one(int dir, const char* name, int flags) {
  const int fd = ::openat(dir, name, flags | O_CLOEXEC);
  return fd >= 0 ? fd : -errno;
}

// A component that must be a directory and no symlink.
int step_into(int dir, const std::string& name) {
  Fd fd(open_one(dir, name.c_str(), O_PATH | O_NOFOLLOW));
  if (!fd) return fd.get();
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return -errno;
  if (S_ISLNK(info.st_mode)) return -ELOOP;
  return S_ISDIR(info.st_mode) ? fd.release() : -ENOTDIR;
}

bool other_device(int a, int b) {
  struct stat one {
  }, two{};
  return ::fstat(a, &one) != 0 || ::fstat(b, &two) != 0 || one.st_dev != two.st_dev;
}

// /proc, when it really is one; kept for the life of the process.
int procfs() {
  static const int fd = [] {
    Fd proc(open_one(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_NOFOLLOW));
    struct statfs info {};
    if (proc.get() < 0 || ::fstatfs(proc.get(), &info) != 0 || info.f_type != PROC_SUPER_MAGIC) return -1;
    return proc.release();
  }();
  return fd;
}

std::string proc_name(int fd) { return "self/fd/" + std::to_string(fd); }

int open_leaf(int dir, const std::string& name, int flags, bool confined) {
  Fd leaf(open_one(dir, name.c_str(), O_PATH | O_NOFOLLOW));
  if (!leaf) return leaf.get();
  struct stat info {};
  if (::fstat(leaf.get(), &info) != 0) return -errno;
  if (confined && other_device(dir, leaf.get())) return -EXDEV;
  if (S_ISLNK(info.st_mode) && ((flags & O_NOFOLLOW) == 0 || (flags & O_PATH) == 0)) return -ELOOP;
  if ((flags & O_DIRECTORY) != 0 && !S_ISDIR(info.st_mode)) return -ENOTDIR;
  return (flags & O_PATH) != 0 ? leaf.release() : reopen(leaf.get(), flags & ~O_NOFOLLOW);
}

}  // namespace

bool have_openat2() {
  static const bool present = [] {
    const Fd fd(openat2(AT_FDCWD, "/", O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS));
    return fd.get() >= 0;
  }();
  return present;
}

int resolve(const Tree& tree, const std::string& path, int flags, bool follow) {
  if (!have_openat2()) return resolve_by_walking(tree, path, flags, follow);
  uint64_t how = RESOLVE_NO_MAGICLINKS;
  how |= tree.confined ? RESOLVE_BENEATH | RESOLVE_NO_XDEV : RESOLVE_IN_ROOT;
  if (!follow) how |= RESOLVE_NO_SYMLINKS;
  return openat2(tree.fd, path.c_str(), flags, how);
}

int resolve_child(int dir, const std::string& name, int flags) {
  Tree tree;
  tree.fd = dir;
  return resolve(tree, name, flags | O_NOFOLLOW, false);
}

int resolve_by_walking(const Tree& tree, const std::string& path, int flags, bool follow) {
  if (!follow) flags &= ~O_NOFOLLOW;
  if (!path.empty() && path.back() == '/') flags |= O_DIRECTORY;
  Fd dir(open_one(tree.fd, ".", O_PATH | O_DIRECTORY));
  if (!dir) return dir.get();
  size_t begin = 0;
  for (size_t slash = path.find('/'); slash != std::string::npos; slash = path.find('/', begin)) {
    if (slash + 1 == path.size()) break;
    const int next = step_into(dir.get(), path.substr(begin, slash - begin));
    if (next < 0) return next;
    Fd entered(next);
    if (tree.confined && other_device(dir.get(), next)) return -EXDEV;
    dir = std::move(entered);
    begin = slash + 1;
  }
  std::string name = path.substr(begin);
  if (!name.empty() && name.back() == '/') name.pop_back();
  return open_leaf(dir.get(), name, flags, tree.confined);
}

int reopen(int path_fd, int flags) {
  if (procfs() < 0) return -ENOSYS;
  return open_one(procfs(), proc_name(path_fd).c_str(), flags);
}

int chmod_by_fd(int path_fd, uint32_t mode) {
  if (procfs() < 0) return -ENOSYS;
  return ::fchmodat(procfs(), proc_name(path_fd).c_str(), mode, 0) == 0 ? 0 : -errno;
}

Error busy_error(std::string message) {
  return {ISOGATE_RESOURCE_EXHAUSTED, EBUSY, std::move(message) + "; try again"};
}

Error resolve_error(const std::string& attempt, const Tree& tree, int negative) {
  const int code = -negative;
  if (code == EXDEV && tree.confined)
    return {ISOGATE_PERMISSION_DENIED, code,
            attempt + ": a symlink leaves " + tree.name + ", or another file system is mounted there"};
  if (code == ELOOP)
    return {ISOGATE_PERMISSION_DENIED, code,
            attempt + ": a symlink leaves " + tree.name + " by way of /proc, or links form a loop"};
  if (code == EAGAIN) return busy_error(attempt + ": its directories keep being renamed");
  if (code == ESTALE)
    return busy_error(attempt +
                      ": a program of the sandbox put something else in the file's place meanwhile");
  return os_error(attempt, code);
}

}  // namespace isogate
