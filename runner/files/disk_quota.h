// How much disk one sandbox uses and may use: checked before the gateway writes for it, and
// reported.
//
// If the kernel enforces it, by a project quota or by a separate file system for the sandbox, it also
// limits programs. Otherwise files are counted: the gateway's own writes as they happen, programs' writes
// by a bounded walk after their execs. Then only the gateway's writes are refused. The cost of a call does
// not depend on the number of files, except for the first write to a sandbox that was not counted yet, and
// for a write that does not fit. A file with several names counts once. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "lib/fd.h"

namespace isogate {

// One inode for so many bytes of a quota, as a new file system has them.
inline constexpr uint64_t kBytesPerInode = 8192;

struct DiskUse {
  uint64_t used_bytes = 0, limit_bytes = 0;  // 0: not limited
  uint64_t used_files = 0, limit_files = 0;  // inodes
  bool enforced = false;                     // by the kernel; false: advisory
  bool exact = true;                         // false: the count is incomplete, or old
};

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileId&) const = default;
};

// The part of a quota that one write has reserved, and the staged file that it fills.
struct DiskTaken {
  uint64_t bytes = 0;
  std::optional<FileId> file;
};

class DiskQuota {
 public:
  virtual ~DiskQuota() = default;
  virtual Result<DiskUse> use() = 0;
  // The same for a write: with one complete count, which may take as long as a walk.
  virtual Result<DiskUse> known() { return use(); }
  // Reserves that many bytes for a write of the gateway, or one file: EDQUOT if the limit has no room and the
  // kernel does not enforce it. Before it refuses, it counts again, unless it just did and no change was
  // reported; with many files it waits some seconds for that. The caller returns the reservation, even if it
  // was written.
  virtual Result<void> take(uint64_t) { return {}; }
  // The reservation stands for this file, which is not counted in addition.
  virtual void cover(const FileId&) {}
  // Returns a reservation and counts, in the same step, the bytes and files that the gateway wrote.
  virtual void give_back(const DiskTaken&, int64_t /*bytes*/, int64_t /*files*/) {}
  // A program ran, or something was removed.
  virtual void changed() {}
  void wrote(int64_t bytes, int64_t files) { give_back({}, bytes, files); }
};

// The part of a quota that one write has reserved; null: there is no quota. Outlives the file that it
// covers. One thread.
class DiskHold {
 public:
  explicit DiskHold(DiskQuota* quota) : quota_(quota) {}
  ~DiskHold() {
    if (quota_ != nullptr) quota_->give_back(taken_, 0, 0);
  }
  DiskHold(const DiskHold&) = delete;
  DiskHold& operator=(const DiskHold&) = delete;
  // Sets the reservation to that much in total.
  Result<void> grow_to(uint64_t bytes) {
    if (quota_ == nullptr || bytes <= taken_.bytes) return {};
    if (auto taken = quota_->take(bytes - taken_.bytes); !taken) return taken;
    taken_.bytes = bytes;
    return {};
  }
  // `file` is empty, and no other was covered.
  Result<void> cover(int file);
  // The write is done: that much more is used than before.
  void wrote(int64_t bytes, int64_t files) {
    if (quota_ != nullptr) quota_->give_back(std::exchange(taken_, {}), bytes, files);
  }

 private:
  DiskQuota* quota_;
  DiskTaken taken_;
};

// ---- project quotas: quotactl_fd(2), Linux 5.14 ---------------------------------------------

// Why the file system of this directory (O_RDONLY) enforces no project quota; OK: it enforces
// them.
Result<void> check_project_quotas(int directory);
// Sets the project of this directory, of everything in it, and of everything made there later. Files that
// cannot be opened (symlinks, FIFOs, sockets, devices) stay unchanged. No other process may use the directory
// meanwhile.
Result<void> assign_project(int directory, uint32_t project);
// Takes this directory itself out of its project: what is made in it later is in none.
Result<void> leave_project(int directory);
// Whether nothing is in it, on the file system of this directory.
Result<bool> is_unused_project(int directory, uint32_t project);
// 0: no limit. Its inodes are bounded by kBytesPerInode.
Result<void> limit_project(int directory, uint32_t project, uint64_t bytes);
std::shared_ptr<DiskQuota> project_quota(Fd directory, uint32_t project);

// ---- a file system of its own ---------------------------------------------------------------

std::shared_ptr<DiskQuota> file_system_quota(Fd directory);

// ---- counting -------------------------------------------------------------------------------

// Counts in the background, on one thread of low priority that starts with the first count.
class DiskCounter {
 public:
  DiskCounter() = default;
  ~DiskCounter();
  DiskCounter(const DiskCounter&) = delete;
  DiskCounter& operator=(const DiskCounter&) = delete;

  // A quota for the content of `directory` (O_RDONLY). `empty`: it was just made. This object
  // outlives it.
  std::shared_ptr<DiskQuota> quota(Fd directory, uint64_t limit_bytes, bool empty);

 private:
  class Counted;
  using Clock = std::chrono::steady_clock;
  // False: it is never counted.
  bool count_at(Clock::time_point when, std::weak_ptr<Counted> what);
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<Clock::time_point, std::weak_ptr<Counted>> waiting_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace isogate
