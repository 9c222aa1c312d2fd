// How much disk one sandbox uses and may use: asked before the gateway writes for it, and reported.
//
// Enforced by the kernel, by a project quota or by a file system of the sandbox's own, it bounds programs
// too. Where there is neither, what the sandbox has is counted: the gateway's own writes as they happen,
// programs' by a bounded walk behind their execs. Then only the gateway's writes are refused. No call costs
// more where there are more files, but the first write to a sandbox that was not counted yet, and one that
// does not fit. A file of several names counts once. Any thread.
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
  bool exact = true;                         // false: used is not counted to its end, or anew
};

struct FileId {
  dev_t device = 0;
  ino_t inode = 0;
  auto operator<=>(const FileId&) const = default;
};

// What one write has taken of a quota, and the file that it fills out of sight.
struct DiskTaken {
  uint64_t bytes = 0;
  std::optional<FileId> file;
};

class DiskQuota {
 public:
  virtual ~DiskQuota() = default;
  virtual Result<DiskUse> use() = 0;
  // The same for a write: counted to its end once, which may take as long as a walk does.
  virtual Result<DiskUse> known() { return use(); }
  // Room for so many bytes more of what the gateway writes, or one file more: EDQUOT where the limit has none
  // and the kernel does not see to it. Before it refuses, it counts again, unless it just did and
  // nothing was said to have changed; where there are many files it waits some seconds for that. What is
  // taken is to be given back, also where it was written.
  virtual Result<void> take(uint64_t) { return {}; }
  // What is taken stands for this file, which is not counted besides.
  virtual void cover(const FileId&) {}
  // In one step, the gateway wrote, and what is there is that much larger and so many files more than before.
  virtual void give_back(const DiskTaken&, int64_t /*bytes*/, int64_t /*files*/) {}
  // A program ran, or something was removed.
  virtual void changed() {}
  void wrote(int64_t bytes, int64_t files) { give_back({}, bytes, files); }
};

// What one write has taken of a quota; null: there is none. Outlives the file that it covers. One thread.
class DiskHold {
 public:
  explicit DiskHold(DiskQuota* quota) : quota_(quota) {}
  ~DiskHold() {
    if (quota_ != nullptr) quota_->give_back(taken_, 0, 0);
  }
  DiskHold(const DiskHold&) = delete;
  DiskHold& operator=(const DiskHold&) = delete;
  // So much in all.
  Result<void> grow_to(uint64_t bytes) {
    if (quota_ == nullptr || bytes <= taken_.bytes) return {};
    if (auto taken = quota_->take(bytes - taken_.bytes); !taken) return taken;
    taken_.bytes = bytes;
    return {};
  }
  // `file` is empty, and no other was covered.
  Result<void> cover(int file);
  // It is done: what was taken is there, as so much more than before.
  void wrote(int64_t bytes, int64_t files) {
    if (quota_ != nullptr) quota_->give_back(std::exchange(taken_, {}), bytes, files);
  }

 private:
  DiskQuota* quota_;
  DiskTaken taken_;
};

// ---- project quotas: quotactl_fd(2), Linux 5.14 ---------------------------------------------

// Why the file system of this directory (O_RDONLY) enforces no project quota; OK: it does.
Result<void> check_project_quotas(int directory);
// Makes `project` the one of this directory, of all that is in it, and of what is made there later. Files
// that nothing can be opened of (symlinks, FIFOs, sockets, devices) stay what they were. Nobody else works in
// there.
Result<void> assign_project(int directory, uint32_t project);
// Whether nothing is in it, on the file system of this directory.
Result<bool> is_unused_project(int directory, uint32_t project);
// 0: no limit. Its inodes are bounded by kBytesPerInode.
Result<void> limit_project(int directory, uint32_t project, uint64_t bytes);
std::shared_ptr<DiskQuota> project_quota(Fd directory, uint32_t project);

// ---- a file system of its own ---------------------------------------------------------------

std::shared_ptr<DiskQuota> file_system_quota(Fd directory);

// ---- counting -------------------------------------------------------------------------------

// Counts behind the calls, on one thread of low priority that starts with the first count.
class DiskCounter {
 public:
  DiskCounter() = default;
  ~DiskCounter();
  DiskCounter(const DiskCounter&) = delete;
  DiskCounter& operator=(const DiskCounter&) = delete;

  // Of what is in `directory` (O_RDONLY). `empty`: it was just made. Outlived by this one.
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
