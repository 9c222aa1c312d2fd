#include "runner/files/disk_quota.h"

#include <fcntl.h>
#include <linux/dqblk_xfs.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lib/thread.h"
#include "runner/files/workspace_identity.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

#ifndef SYS_quotactl_fd
constexpr long SYS_quotactl_fd = 443;
#endif
#ifndef PRJQUOTA
constexpr int PRJQUOTA = 2;
#endif

constexpr uint64_t kBlock = 1024;  // of dqb_bhardlimit
constexpr size_t kDeepest = 64;    // directories open at a time
constexpr uint64_t kMostCounted = 200'000, kMostOfAny = 1'000'000;
constexpr size_t kMostLinked = 50'000;  // files with several names that are counted only once
// A count waits this long for others to share it, and no sandbox is counted again for nine times as long as
// its last count took.
constexpr std::chrono::milliseconds kGather{100};
constexpr int kRest = 9;
constexpr std::chrono::seconds kLongestRest{60};
// A write that the count refuses waits for a count that began after it, which starts three times as long
// after the last one as the last one took.
constexpr int kRestOfRefused = 3;
constexpr std::chrono::seconds kLongestWait{5};

long project_call(int directory, int command, uint32_t project, void* data) {
  return ::syscall(SYS_quotactl_fd, directory, QCMD(static_cast<unsigned>(command), PRJQUOTA), project, data);
}

// Visits every entry below `top`, depth first, as long as `visit` returns true. False: not all were visited,
// because the tree is too deep, or `visit` returned false. Names are single components that are neither
// symlinks nor other mounts.
using Visit = std::function<bool(int directory, const std::string& name, const struct stat& info)>;

bool walk(int top, const Visit& visit, size_t depth = 0) {
  if (::lseek(top, 0, SEEK_SET) != 0) return false;  // it was read before
  DirReader reader;
  bool whole = true;
  while (!reader.end()) {
    std::vector<DirReader::Name> names;
    if (reader.next(top, names) < 0) return false;
    for (const auto& each : names) {
      struct stat info {};
      if (::fstatat(top, each.text.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
        whole = errno == ENOENT && whole;
        continue;
      }
      if (!visit(top, each.text, info)) return false;
      if (!S_ISDIR(info.st_mode)) continue;
      const Fd child(depth < kDeepest ? resolve_child(top, each.text, O_RDONLY | O_DIRECTORY) : -ELOOP);
      if (!child && child.get() == -ENOENT) continue;
      whole = child && walk(child.get(), visit, depth + 1) && whole;
    }
  }
  return whole;
}

Result<void> set_project(int file, uint32_t project, bool inherit) {
  fsxattr attributes = {};
  if (::ioctl(file, FS_IOC_FSGETXATTR, &attributes) != 0)
    return os_error("cannot read the project of a file", errno);
  attributes.fsx_projid = project;
  attributes.fsx_xflags &= ~uint32_t{FS_XFLAG_PROJINHERIT};
  if (inherit) attributes.fsx_xflags |= FS_XFLAG_PROJINHERIT;
  if (::ioctl(file, FS_IOC_FSSETXATTR, &attributes) != 0)
    return os_error("cannot set the project of a file", errno);
  return {};
}

bool is_in_project(int file, uint32_t project) {
  fsxattr attributes = {};
  return ::ioctl(file, FS_IOC_FSGETXATTR, &attributes) == 0 && attributes.fsx_projid == project &&
         (attributes.fsx_xflags & FS_XFLAG_PROJINHERIT) != 0;
}

class ProjectQuota final : public DiskQuota {
 public:
  ProjectQuota(Fd directory, uint32_t project) : directory_(std::move(directory)), project_(project) {}
  Result<DiskUse> use() override {
    if_dqblk found = {};
    if (project_call(directory_.get(), Q_GETQUOTA, project_, &found) != 0)
      return os_error("cannot read a project quota", errno);
    DiskUse use;
    use.used_bytes = found.dqb_curspace;
    use.limit_bytes = found.dqb_bhardlimit * kBlock;
    use.used_files = found.dqb_curinodes;
    use.limit_files = found.dqb_ihardlimit;
    use.enforced = true;
    return use;
  }

 private:
  const Fd directory_;
  const uint32_t project_;
};

class FileSystemQuota final : public DiskQuota {
 public:
  explicit FileSystemQuota(Fd directory) : directory_(std::move(directory)) {}
  Result<DiskUse> use() override {
    struct statvfs info {};
    if (::fstatvfs(directory_.get(), &info) != 0) return os_error("cannot look at a file system", errno);
    if (info.f_blocks == 0) return unsupported("a file system does not say how large it is");
    DiskUse use;  // without the blocks reserved for root
    use.used_bytes = (info.f_blocks - info.f_bfree) * info.f_frsize;
    use.limit_bytes = use.used_bytes + info.f_bavail * info.f_frsize;
    use.used_files = info.f_files - info.f_ffree;
    use.limit_files = info.f_files;
    use.enforced = true;
    return use;
  }

 private:
  const Fd directory_;
};

}  // namespace

Result<void> DiskHold::cover(int file) {
  if (quota_ == nullptr) return {};
  struct stat info {};
  if (::fstat(file, &info) != 0) return os_error("cannot look at a staged file", errno);
  taken_.file = FileId{info.st_dev, info.st_ino};
  quota_->cover(*taken_.file);
  return {};
}

Result<void> check_project_quotas(int directory) {
  fs_quota_statv state = {};
  state.qs_version = FS_QSTATV_VERSION1;
  const bool found = project_call(directory, Q_XGETQSTATV, 0, &state) == 0;
  if (!found && errno != ENOSYS) return os_error("this file system has no project quotas", errno);
  // That is also the answer where none is on. A kernel without them does not even look at the descriptor.
  if (!found && project_call(-1, Q_XGETQSTATV, 0, &state) != 0 && errno == ENOSYS)
    return unsupported("this kernel has no project quotas");
  if ((state.qs_flags & FS_QUOTA_PDQ_ENFD) == 0)
    return unsupported("this file system does not enforce project quotas (mount it with prjquota)");
  fsxattr attributes = {};
  if (::ioctl(directory, FS_IOC_FSGETXATTR, &attributes) != 0)
    return os_error("this file system has no projects", errno);
  if_dqblk any = {};
  if (project_call(directory, Q_GETQUOTA, 1, &any) != 0 && errno == EPERM)
    return os_error("project quotas need CAP_SYS_ADMIN", errno);
  return {};
}

Result<void> assign_project(int directory, uint32_t project) {
  if (is_in_project(directory, project)) return {};
  Result<void> done;
  const bool whole = walk(directory, [&](int parent, const std::string& name, const struct stat& info) {
    if (!done) return false;
    if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) return true;
    const Fd file(resolve_child(parent, name, O_RDONLY | O_NONBLOCK | O_NOCTTY));
    done = file ? set_project(file.get(), project, S_ISDIR(info.st_mode))
                : os_error("cannot open a file to set its project", -file.get());
    return done.ok();
  });
  if (!done) return done;
  if (!whole)
    return unsupported("its directories are deeper than " + std::to_string(kDeepest) +
                       ", so that not all of it can be counted");
  return set_project(directory, project, true);  // last: it marks the tree as complete
}

Result<void> leave_project(int directory) { return set_project(directory, 0, false); }

Result<bool> is_unused_project(int directory, uint32_t project) {
  if_dqblk found = {};
  if (project_call(directory, Q_GETQUOTA, project, &found) == 0)
    return found.dqb_curspace == 0 && found.dqb_curinodes == 0;
  if (errno == ENOENT || errno == ESRCH) return true;  // nothing was ever in it
  return os_error("cannot read a project quota", errno);
}

Result<void> limit_project(int directory, uint32_t project, uint64_t bytes) {
  if_dqblk wanted = {};
  wanted.dqb_valid = QIF_LIMITS;
  wanted.dqb_bhardlimit = wanted.dqb_bsoftlimit = (bytes + kBlock - 1) / kBlock;
  wanted.dqb_ihardlimit = wanted.dqb_isoftlimit =
      bytes == 0 ? 0 : std::max<uint64_t>(bytes / kBytesPerInode, 64);
  if (project_call(directory, Q_SETQUOTA, project, &wanted) != 0)
    return os_error("cannot set a project quota", errno);
  if_dqblk found = {};
  if (project_call(directory, Q_GETQUOTA, project, &found) != 0)
    return os_error("cannot read a project quota back", errno);
  if (found.dqb_bhardlimit != wanted.dqb_bhardlimit || found.dqb_ihardlimit != wanted.dqb_ihardlimit)
    return unsupported("the project quota was set, and reads otherwise");
  return {};
}

std::shared_ptr<DiskQuota> project_quota(Fd directory, uint32_t project) {
  return std::make_shared<ProjectQuota>(std::move(directory), project);
}

std::shared_ptr<DiskQuota> file_system_quota(Fd directory) {
  return std::make_shared<FileSystemQuota>(std::move(directory));
}

class DiskCounter::Counted final : public DiskQuota, public std::enable_shared_from_this<Counted> {
 public:
  Counted(DiskCounter& counter, Fd directory, uint64_t limit, bool empty)
      : counter_(counter), directory_(std::move(directory)), counted_(empty), stale_(!empty) {
    use_.limit_bytes = limit;
    use_.limit_files = std::max<uint64_t>(limit / kBytesPerInode, 1);
    use_.exact = empty;
  }

  Result<DiskUse> use() override {
    const std::lock_guard lock(mutex_);
    if (stale_) ask();
    DiskUse use = use_;
    use.exact = use.exact && !stale_;
    return use;
  }

  Result<DiskUse> known() override {
    {
      const std::lock_guard first(counting_);
      std::unique_lock lock(mutex_);
      if (!counted_) {
        lock.unlock();
        walk_and_keep();
      }
    }
    return use();
  }

  Result<void> take(uint64_t bytes) override {
    if (auto taken = take_as_counted(bytes); taken) return taken;
    if (may_be_old()) count_since(Clock::now());
    return take_as_counted(bytes);
  }

  void cover(const FileId& file) override {
    const std::lock_guard lock(mutex_);
    covered_.insert(file);
  }

  void give_back(const DiskTaken& taken, int64_t bytes, int64_t files) override {
    const std::lock_guard lock(mutex_);
    held_ -= std::min(held_, taken.bytes);
    if (taken.file) covered_.erase(*taken.file);
    since_ += bytes;
    use_.used_bytes = plus(use_.used_bytes, bytes);
    use_.used_files = plus(use_.used_files, files);
  }

  void changed() override {
    const std::lock_guard lock(mutex_);
    stale_ = true;
    ask();
  }

  void count() {
    const std::lock_guard one(counting_);
    walk_and_keep();
  }

 private:
  Result<void> take_as_counted(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    const uint64_t taken = use_.used_bytes + held_;
    if (taken > use_.limit_bytes || bytes > use_.limit_bytes - taken || use_.used_files >= use_.limit_files)
      return os_error("cannot write", EDQUOT);
    held_ += bytes;
    return {};
  }

  bool may_be_old() {
    const std::lock_guard lock(mutex_);
    return stale_ || Clock::now() >= when_due();
  }

  // The earliest time of the next count in the background.
  [[nodiscard]] Clock::time_point when_due() const {
    return ended_ + std::min<Clock::duration>(kRest * (ended_ - begun_), kLongestRest);
  }

  // Afterwards the count is of `asked` or later. Several callers share one count, and none waits with
  // counting_ held.
  void count_since(Clock::time_point asked) {
    for (;;) {
      {
        const std::lock_guard one(counting_);
        const std::lock_guard lock(mutex_);
        if (counted_ && begun_ >= asked) return;
      }
      std::this_thread::sleep_until(when_rested());
      const std::lock_guard one(counting_);
      if (when_rested() > Clock::now()) continue;  // another caller counted
      walk_and_keep();
      return;
    }
  }

  Clock::time_point when_rested() {
    const std::lock_guard lock(mutex_);
    return ended_ + std::min<Clock::duration>(kRestOfRefused * (ended_ - begun_), kLongestWait);
  }

  static uint64_t plus(uint64_t to, int64_t change) {
    return static_cast<uint64_t>(std::max<int64_t>(0, static_cast<int64_t>(to) + change));
  }

  // Covered files are reserved, and skipped. If anything was written meanwhile, the walk may have counted it
  // or not: it is added, so that the count is rather too high, and the tree is counted again.
  void walk_and_keep() {
    // A tenant may not see everything: the thread can have the identity of a file call, which it makes, or
    // which started it.
    const bool as_tenant = static_cast<uid_t>(::setfsuid(UINT32_MAX)) != ::geteuid();
    const FsIdentity as_host = FsIdentity::of_this_process(as_tenant);
    const auto begun = Clock::now();
    bool busy = false;
    {
      const std::lock_guard lock(mutex_);
      asked_ = stale_ = false;
      since_ = 0;
      busy = held_ != 0;
    }
    uint64_t bytes = 0, files = 0;
    uint64_t names = 0;
    std::set<FileId> linked;
    const uint64_t most = std::clamp(use_.limit_files + 1, kMostCounted, kMostOfAny);
    const auto add = [&](int, const std::string&, const struct stat& info) {
      const FileId file{info.st_dev, info.st_ino};
      const bool again = is_covered(file) || (info.st_nlink > 1 && !S_ISDIR(info.st_mode) &&
                                              linked.size() < kMostLinked && !linked.insert(file).second);
      bytes += again ? 0 : static_cast<uint64_t>(info.st_blocks) * 512;
      files += again ? 0 : 1;
      return ++names < most;
    };
    const bool whole = !as_host.error() && walk(directory_.get(), add);
    const std::lock_guard lock(mutex_);
    bytes = plus(bytes, std::max<int64_t>(0, since_));
    // Unvisited entries still exist.
    use_.used_bytes = whole ? bytes : std::max(bytes, use_.used_bytes);
    use_.used_files = whole ? files : std::max(files, use_.used_files);
    use_.exact = whole && linked.size() < kMostLinked;
    counted_ = true;
    if (busy || held_ != 0 || since_ != 0) stale_ = true;
    begun_ = begun;
    ended_ = Clock::now();
  }

  bool is_covered(const FileId& file) {
    const std::lock_guard lock(mutex_);
    return covered_.contains(file);
  }

  void ask() {
    if (std::exchange(asked_, true)) return;
    asked_ = counter_.count_at(std::max(Clock::now() + kGather, when_due()), weak_from_this());
  }

  DiskCounter& counter_;
  const Fd directory_;
  std::mutex counting_;  // one walk at a time; before mutex_
  std::mutex mutex_;
  DiskUse use_;
  uint64_t held_ = 0;
  std::set<FileId> covered_;
  int64_t since_ = 0;  // written since the count began
  bool counted_, stale_, asked_ = false;
  Clock::time_point begun_, ended_;  // of the last count: no sandbox may monopolize the counter
};

std::shared_ptr<DiskQuota> DiskCounter::quota(Fd directory, uint64_t limit_bytes, bool empty) {
  return std::make_shared<Counted>(*this, std::move(directory), limit_bytes, empty);
}

bool DiskCounter::count_at(Clock::time_point when, std::weak_ptr<Counted> what) {
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  if (!thread_.joinable() && !start_thread(thread_, "cannot start a thread", [this] { work(); }))
    return false;  // the report stays inexact
  waiting_.emplace(when, std::move(what));
  changed_.notify_one();
  return true;
}

DiskCounter::~DiskCounter() { end_thread(thread_, mutex_, ending_, changed_); }

void DiskCounter::work() {
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), 10);
  std::unique_lock lock(mutex_);
  while (!ending_) {
    if (waiting_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto due = waiting_.begin()->first;
    if (due > Clock::now()) {
      changed_.wait_until(lock, due);
      continue;
    }
    const auto next = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    lock.unlock();
    if (const auto counted = next.lock()) counted->count();
    lock.lock();
  }
}

}  // namespace isogate
