#include "runner/cgroup/cgroup_base.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <sstream>
#include <thread>
#include <vector>

#include "lib/text.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr int kDirectory = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW;

std::vector<std::string> subdirectories(int directory_fd) {
  std::vector<std::string> names;
  const Fd listing(::openat(directory_fd, ".", kDirectory));
  each_name(listing.get(), [&](auto& name) {
    if (name.type == DT_DIR && name.text[0] != '.') names.push_back(std::move(name.text));
  });
  return names;
}

// For a moment after its last process has died, rmdir of a group may be refused, and no event announces the
// end of that moment.
bool remove_directory(int parent_fd, const std::string& name) {
  for (int attempt = 0; attempt < 40; ++attempt) {
    if (::unlinkat(parent_fd, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return true;
    if (errno != EBUSY) return false;
    std::this_thread::sleep_for(std::chrono::microseconds(attempt < 10 ? 100 : 1000));
  }
  return false;
}

// v1 has no cgroup.kill. Everything in such a group is ours: only root and this process put anything there.
void kill_group(int directory_fd, const std::string& name) {
  const Fd group(::openat(directory_fd, name.c_str(), kDirectory));
  if (!group || write_small_file(group.get(), "cgroup.kill", "1").ok()) return;
  std::istringstream pids(read_small_file(group.get(), "cgroup.procs"));
  for (pid_t pid = 0; pids >> pid;) {
    if (pid > 1) ::kill(pid, SIGKILL);  // 0: not in our pid namespace
  }
}

bool remove_tree(int parent_fd, int directory_fd, const std::string& name) {
  for (int attempt = 0; attempt < 20; ++attempt) {
    for (const auto& group : subdirectories(directory_fd)) {
      kill_group(directory_fd, group);
      const Fd below(::openat(directory_fd, group.c_str(), kDirectory));
      if (below) (void)remove_tree(directory_fd, below.get(), group);
    }
    if (remove_directory(parent_fd, name)) return true;
  }
  return false;
}

bool is_base_name(const std::string& name, const std::string& group) {
  if (!name.starts_with(group + ".")) return false;
  const auto numbers = split(std::string_view(name).substr(group.size() + 1), '.');
  return numbers.size() == 2 && is_digits(numbers[0]) && is_digits(numbers[1]);
}

// Locked, and still there: a sweeper may have come between mkdir and flock, or between open and flock, and
// then another process may have made a base of that name.
bool lock_base(int parent_fd, const std::string& name, int directory_fd) {
  if (::flock(directory_fd, LOCK_EX | LOCK_NB) != 0) return false;
  struct stat ours {
  }, there{};
  return ::fstat(directory_fd, &ours) == 0 &&
         ::fstatat(parent_fd, name.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 && ours.st_ino == there.st_ino;
}

void sweep(int parent_fd, const std::string& group) {
  for (const auto& name : subdirectories(parent_fd)) {
    if (!is_base_name(name, group)) continue;
    const Fd directory(::openat(parent_fd, name.c_str(), kDirectory));
    if (directory && lock_base(parent_fd, name, directory.get())) {
      (void)remove_tree(parent_fd, directory.get(), name);
    }
  }
}

// The root of the hierarchy has no such file.
bool is_root_group(int directory_fd) { return ::faccessat(directory_fd, "cgroup.events", F_OK, 0) != 0; }

struct Delegated {
  std::string path;
  Fd directory;  // none: there is no such cgroup
};

// This process's own cgroup2, if that has controllers, was delegated to it (Delegate=yes in systemd) and can
// be written to, so that groups below it get controllers once no process lives in it.
Delegated delegated_cgroup() {
  for (auto& hierarchy : detect_cgroups()) {
    if (hierarchy.version != 2 || hierarchy.controllers.empty() || !is_delegated(hierarchy.directory))
      continue;
    Fd directory(::open(hierarchy.directory.c_str(), kDirectory));
    if (directory && !is_root_group(directory.get()) &&
        ::faccessat(directory.get(), "cgroup.procs", W_OK, AT_EACCESS) == 0)
      return {std::move(hierarchy.directory), std::move(directory)};
  }
  return {};
}

}  // namespace

Result<void> leave_delegated_cgroup() {
  const auto [own, directory] = delegated_cgroup();
  if (!directory) return {};
  if (read_small_file(directory.get(), "cgroup.procs") != std::to_string(::getpid()) + "\n")
    return Error{ISOGATE_UNAVAILABLE, 0, "other processes live in `" + own + "`"};
  if (::mkdirat(directory.get(), "gateway", 0755) != 0 && errno != EEXIST)
    return os_error("cannot make the group `gateway` in `" + own + "`", errno);
  return write_small_file(directory.get(), "gateway/cgroup.procs", "0");
}

Result<void> write_small_file(int directory_fd, const std::string& name, const std::string& text) {
  const Fd file(::openat(directory_fd, name.c_str(), O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) return os_error("cannot open `" + name + "`", errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return os_error("cannot write `" + text + "` to `" + name + "`", errno);
  }
  return {};
}

Result<std::unique_ptr<CgroupBase>> CgroupBase::make(const CgroupHierarchy& hierarchy,
                                                     const std::string& group) {
  std::unique_ptr<CgroupBase> base(new CgroupBase);
  const std::string parent = directory_of_groups(hierarchy);
  base->version_ = hierarchy.version;
  base->parent_ = Fd(::open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!base->parent_) return os_error("cannot open `" + parent + "`", errno);
  sweep(base->parent_.get(), group);
  for (int n = 0; n < 1000; ++n) {
    const std::string name = group + "." + std::to_string(::getpid()) + "." + std::to_string(n);
    if (::mkdirat(base->parent_.get(), name.c_str(), 0755) != 0) {
      if (errno == EEXIST) continue;
      return os_error("cannot make a group in `" + parent + "`", errno);
    }
    base->directory_ = Fd(::openat(base->parent_.get(), name.c_str(), kDirectory));
    if (!base->directory_ || !lock_base(base->parent_.get(), name, base->directory_.get())) continue;
    base->name_ = name;
    if (base->version_ == 2) {
      base->kill_ = Fd(::openat(base->directory_.get(), "cgroup.kill", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    }
    return base;
  }
  return Error{ISOGATE_RESOURCE_EXHAUSTED, EEXIST,
               "cannot make a group in `" + parent + "`: all names are taken"};
}

Result<std::unique_ptr<CgroupBase>> CgroupBase::nest(const CgroupBase& above, const std::string& name) {
  std::unique_ptr<CgroupBase> base(new CgroupBase);
  base->version_ = above.version_;
  base->above_ = &above;
  auto directory = above.make_group(name);
  if (!directory) return directory.error();
  base->directory_ = std::move(*directory);
  base->name_ = name;
  return base;
}

CgroupBase::~CgroupBase() {
  if (!name_.empty()) (void)remove_tree(parent_fd(), directory_.get(), name_);
}

Result<void> CgroupBase::enable(const std::string& controller) const {
  if (above_ == nullptr && !is_root_group(parent_fd()) &&
      !read_small_file(parent_fd(), "cgroup.procs").empty())
    return unsupported(
        std::string(kProcessesAbove) +
        ", so that the kernel gives those below it no limits: start the "
        "gateway alone in a cgroup that is delegated to it, as its service or `systemd-run --scope -p "
        "Delegate=yes` does");
  for (const int directory : {parent_fd(), directory_.get()}) {
    std::istringstream names(read_small_file(directory, "cgroup.subtree_control"));
    const std::istream_iterator<std::string> enabled(names), end;
    if (std::find(enabled, end, controller) != end) continue;
    if (auto written = write_small_file(directory, "cgroup.subtree_control", "+" + controller); !written)
      return written;
  }
  return {};
}

Result<Fd> CgroupBase::make_group(const std::string& name) const {
  if (::mkdirat(directory_.get(), name.c_str(), 0755) != 0) return os_error("cannot make a cgroup", errno);
  Fd group(::openat(directory_.get(), name.c_str(), kDirectory));
  if (!group) return os_error("cannot open a cgroup", errno);
  return group;
}

bool CgroupBase::remove_group(const std::string& name) const {
  return remove_directory(directory_.get(), name);
}

}  // namespace isogate
