#include "runner/files/workspace_resolve.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <sys/vfs.h>

#include <cerrno>
#include <optional>
#include <vector>

#include "lib/text.h"

namespace isogate {
namespace {

constexpr int kMaxResolveTries = 32;  // of a path that is being renamed while it is resolved
constexpr int kMaxLinks = 40;         // as path_resolution(7)
constexpr size_t kMaxSteps = 4096;    // of one path with all its links

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

bool other_device(int a, int b) {
  struct stat one {
  }, two{};
  return ::fstat(a, &one) != 0 || ::fstat(b, &two) != 0 || one.st_dev != two.st_dev;
}

// /proc, if it really is procfs; kept for the life of the process.
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

// One component; not a symlink, but for O_PATH with O_NOFOLLOW.
int open_component(int dir, const std::string& name, int flags, bool confined) {
  Fd leaf(open_one(dir, name.c_str(), O_PATH | O_NOFOLLOW));
  if (!leaf) return leaf.get();
  struct stat info {};
  if (::fstat(leaf.get(), &info) != 0) return -errno;
  if (confined && other_device(dir, leaf.get())) return -EXDEV;
  if (S_ISLNK(info.st_mode) && ((flags & O_NOFOLLOW) == 0 || (flags & O_PATH) == 0)) return -ELOOP;
  if ((flags & O_DIRECTORY) != 0 && !S_ISDIR(info.st_mode)) return -ENOTDIR;
  return (flags & O_PATH) != 0 ? leaf.release() : reopen(leaf.get(), flags & ~O_NOFOLLOW);
}

// The target of the symlink behind an O_PATH descriptor; 0 or -errno.
int link_target(int link, std::string& target) {
  struct statfs where {};
  if (::fstatfs(link, &where) != 0) return -errno;
  if (where.f_type == PROC_SUPER_MAGIC) return -ELOOP;  // it may be a magic one
  auto text = read_link(link, "", "");
  if (!text) return -text.error().os_errno;
  target = std::move(*text);
  return target.empty() ? -ENOENT : 0;
}

// Like fs.protected_symlinks: links are followed by name here, where the kernel does not check.
bool may_follow(int parent, const struct stat& link) {
  struct stat directory {};
  if (::fstat(parent, &directory) != 0) return false;
  constexpr mode_t kShared = S_ISVTX | S_IWOTH;
  const auto self = static_cast<uid_t>(::syscall(SYS_setfsuid, UINT32_MAX));  // asks only
  return (directory.st_mode & kShared) != kShared || link.st_uid == self || link.st_uid == directory.st_uid;
}

// An absolute target as a path from the root of the tree; nothing: it leads elsewhere.
std::optional<std::string> from_root(const Tree& tree, std::string_view target) {
  if (tree.confined) {
    if (tree.own_path.empty() || !target.starts_with(tree.own_path)) return std::nullopt;
    target.remove_prefix(tree.own_path.size());
    if (!target.empty() && target.front() != '/') return std::nullopt;
  }
  const size_t begin = target.find_first_not_of('/');
  return begin == std::string_view::npos ? "." : std::string(target.substr(begin));
}

// Follows the symlinks of a path by itself, relative ones and those from_root() knows.
class LinkWalk {
 public:
  LinkWalk(const Tree& tree, const std::string& path) : tree_(tree) { put_in_front(path); }

  int run(int flags) {
    dir_ = Fd(resolve_child(tree_.fd, ".", O_PATH | O_DIRECTORY));
    if (!dir_) return dir_.get();
    while (!left_.empty()) {
      if (++steps_ > kMaxSteps) return -ELOOP;
      const std::string name = std::move(left_.back());
      left_.pop_back();
      if (name == ".") continue;
      if (const int code = name == ".." ? climb() : enter(name, flags); code != 0) return code;
      if (found_) return found_.release();
    }
    return resolve_child(dir_.get(), ".", flags);
  }

 private:
  void put_in_front(std::string_view path) {
    std::vector<std::string> parts;
    while (!path.empty()) {
      const size_t slash = path.find('/');
      if (slash != 0) parts.emplace_back(path.substr(0, slash));
      if (slash == std::string_view::npos) break;
      path.remove_prefix(slash + 1);
      if (path.empty()) parts.emplace_back(".");  // a name with a slash after it is a directory
    }
    left_.insert(left_.end(), parts.rbegin(), parts.rend());
  }

  int climb() {
    if (done_.empty()) return -EXDEV;
    done_.pop_back();
    return go_back();
  }

  // By name, because a directory that was moved meanwhile has another parent.
  int go_back() {
    steps_ += done_.size();  // all of them are resolved again
    std::string path = ".";
    for (const std::string& name : done_) path += '/' + name;
    Fd dir(resolve(tree_, path, O_PATH | O_DIRECTORY, false));
    if (!dir) return dir.get();
    dir_ = std::move(dir);
    return 0;
  }

  int enter(const std::string& name, int flags) {
    Fd next(resolve_child(dir_.get(), name, O_PATH));
    if (!next) return next.get();
    struct stat info {};
    if (::fstat(next.get(), &info) != 0) return -errno;
    const bool last = left_.empty();
    if (S_ISLNK(info.st_mode) && !(last && (flags & O_NOFOLLOW) != 0))
      return may_follow(dir_.get(), info) ? follow(next.get()) : -EACCES;
    if (last) {
      found_ = Fd(resolve_child(dir_.get(), name, flags));
      return found_ ? 0 : found_.get();
    }
    if (!S_ISDIR(info.st_mode)) return -ENOTDIR;
    done_.push_back(name);
    dir_ = std::move(next);
    return 0;
  }

  int follow(int link) {
    if (++links_ > kMaxLinks) return -ELOOP;
    std::string target;
    if (const int code = link_target(link, target); code != 0) return code;
    if (target.front() != '/') {
      put_in_front(target);
      return 0;
    }
    const auto path = from_root(tree_, target);
    if (!path) return -EXDEV;
    put_in_front(*path);
    done_.clear();
    return go_back();
  }

  const Tree& tree_;
  std::vector<std::string> left_;  // the next one last
  std::vector<std::string> done_;  // the path from the root to dir_, without links
  Fd dir_, found_;
  int links_ = 0;
  size_t steps_ = 0;
};

// A path in procfs, of what depends on who looks at it.
bool names_a_process(std::string_view path) {
  if (path.ends_with("/keys") && !path.ends_with("/kernel/keys")) return true;
  while (!path.empty()) {
    if (is_digits(next_part(path, '/'))) return true;
  }
  return false;
}

int resolve_any(const Tree& tree, const std::string& path, int flags, bool follow) {
  if (!have_openat2()) return resolve_by_walking(tree, path, flags, follow);
  uint64_t how = RESOLVE_NO_MAGICLINKS;
  how |= tree.confined ? RESOLVE_BENEATH | RESOLVE_NO_XDEV : RESOLVE_IN_ROOT;
  if (!follow) how |= RESOLVE_NO_SYMLINKS;
  const int found = openat2(tree.fd, path.c_str(), flags, how);
  if (found != -EXDEV || !follow || !tree.confined || tree.own_path.empty()) return found;
  return LinkWalk(tree, path).run(flags);
}

}  // namespace

bool is_of_a_process(int file) {
  const auto path = read_link(AT_FDCWD, "/proc/" + proc_name(file), "");
  if (path && path->starts_with('/') && !names_a_process(*path)) return false;
  struct statfs info {};
  return ::fstatfs(file, &info) != 0 || info.f_type == PROC_SUPER_MAGIC;
}

bool have_openat2() {
  static const bool present = [] {
    const Fd fd(openat2(AT_FDCWD, "/", O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS));
    return fd.get() >= 0;
  }();
  return present;
}

int resolve(const Tree& tree, const std::string& path, int flags, bool follow) {
  Fd found(resolve_any(tree, path, flags, follow));
  if (found && !tree.confined && is_of_a_process(found.get())) return -ESRCH;
  return found.release();
}

int resolve_leaf(const Tree& tree, const std::string& path, Leaf& leaf) {
  std::string at = path;
  for (leaf.links = 0; leaf.links <= kMaxLinks; ++leaf.links) {
    const size_t slash = at.rfind('/');
    std::string name = at.substr(slash == std::string::npos ? 0 : slash + 1);
    const bool is_directory = name.empty() || name == "." || name == "..";
    const std::string directory = is_directory ? at : slash == std::string::npos ? "." : at.substr(0, slash);
    leaf.parent = Fd(resolve(tree, directory, O_PATH | O_DIRECTORY));
    if (!leaf.parent) return leaf.parent.get();
    leaf.name = is_directory ? "." : std::move(name);
    const Fd there(open_one(leaf.parent.get(), leaf.name.c_str(), O_PATH | O_NOFOLLOW));
    if (!there) return there.get() == -ENOENT ? 0 : there.get();
    struct stat info {};
    if (::fstat(there.get(), &info) != 0) return -errno;
    if (!S_ISLNK(info.st_mode)) return 0;
    std::string target;
    if (!have_openat2()) return -ELOOP;
    if (!may_follow(leaf.parent.get(), info)) return -EACCES;
    if (const int code = link_target(there.get(), target); code != 0) return code;
    if (target.front() != '/') {
      at = directory + '/' + target;
    } else {
      const auto from = from_root(tree, target);
      if (!from) return -EXDEV;
      at = *from;
    }
  }
  return -ELOOP;
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
    const std::string part = path.substr(begin, slash - begin);
    dir = Fd(open_component(dir.get(), part, O_PATH | O_DIRECTORY, tree.confined));
    if (!dir) return dir.get();
    begin = slash + 1;
  }
  std::string name = path.substr(begin);
  if (!name.empty() && name.back() == '/') name.pop_back();
  return open_component(dir.get(), name, flags, tree.confined);
}

int reopen(int path_fd, int flags) {
  if (procfs() < 0) return -ENOSYS;
  return open_one(procfs(), proc_name(path_fd).c_str(), flags);
}

int chmod_by_fd(int path_fd, uint32_t mode) {
  if (procfs() < 0) return -ENOSYS;
  return ::fchmodat(procfs(), proc_name(path_fd).c_str(), mode, 0) == 0 ? 0 : -errno;
}

int watch_by_fd(int inotify, int fd, uint32_t mask) {
  if (procfs() < 0) return -ENOSYS;
  const int watch = ::inotify_add_watch(inotify, ("/proc/" + proc_name(fd)).c_str(), mask);
  return watch >= 0 ? watch : -errno;
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
  if (code == ESRCH)
    return {ISOGATE_PERMISSION_DENIED, code,
            attempt + ": it describes a process or a device: use an exec for it"};
  if (code == EAGAIN) return busy_error(attempt + ": its directories keep being renamed");
  if (code == ESTALE)
    return busy_error(attempt +
                      ": a program of the sandbox put something else in the file's place meanwhile");
  return os_error(attempt, code);
}

}  // namespace isogate
