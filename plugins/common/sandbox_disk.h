// What bounds the disk of one sandbox on this host, as its backend's settings want it.
//
//   directory  its files lie on the file system of the state directory: bounded by a project quota where that
//              has them, else counted (runner/files/disk_quota.h)
//   loop       <sandbox>/disk.img, a sparse ext4 of its own, checked and mounted at <sandbox>/disk at each
//   open tmpfs      a tmpfs at <sandbox>/disk, which lasts until it is purged or this host ends
//
// Of loop, the lock that the kernel's loop device keeps on the image tells whether anything still uses it;
// one on the sandbox's directory tells whether a backend host has it open. What a host that died has left
// mounted is unmounted by the next start or open. A step that fails leaves nothing mounted, and no new image.
// What cannot be opened any more can be closed and purged. SandboxDisks: any thread. SandboxDisk: one at a
// time, but for quota().
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/disk.h"
#include "plugins/common/strict_limits.h"
#include "runner/exec/command.h"
#include "runner/files/disk_quota.h"

namespace isogate {

enum class WorkspaceFs { kDirectory, kLoop, kTmpfs };
std::optional<WorkspaceFs> workspace_fs_named(std::string_view name);

struct DiskPolicy {
  WorkspaceFs fs = WorkspaceFs::kDirectory;
  uint64_t disk_mb = kStrictLimits.disk_mb;  // of a sandbox for which nothing is asked; 0: no limit
  bool written = false;                      // by the operator: advisory is not enough then
  // No program can change the project of a file: a project quota is enforced, and not merely in force.
  bool projects_out_of_reach = false;
};

// The settings `disk_mb` and `workspace_fs` of a backend.
Result<void> take_disk(const std::string& backend, const std::string& name, const nlohmann::json& value,
                       DiskPolicy& policy);
// In words what is weaker than the default.
void add_disk(std::vector<std::string>& found, const DiskPolicy& policy);
// Why this cannot be; empty: it can. `whose`: "`namespace`".
std::string why_no_disk(const std::string& whose, const DiskPolicy& policy);

class SandboxDisk {
 public:
  ~SandboxDisk();  // unmounts a loop file system that is its own
  SandboxDisk(const SandboxDisk&) = delete;
  SandboxDisk& operator=(const SandboxDisk&) = delete;

  // Where the workspace and its staging lie: O_RDONLY, borrowed, and as a path of this host.
  [[nodiscard]] int home() const { return home_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::shared_ptr<DiskQuota>& quota() const { return quota_; }  // null: not limited
  // What the kernel enforces; 0: nothing.
  [[nodiscard]] uint64_t enforced_bytes() const { return enforced_bytes_; }
  // What is in force, to the limits that were measured.
  void add_to(isogate_evidence& evidence) const;
  // ISOGATE_UNSUPPORTED: it is neither limited nor counted.
  Result<isogate_disk_use> use() const;
  // What outlives this process uses what is mounted: it stays, for an open() that keeps it. So it does until
  // hold(), where this one found it mounted.
  void leave();
  void hold();
  // The sandbox's directory was renamed to <sandboxes_dir>/<id>; `lock` of it (flock(2)) is this one's now.
  void moved(const std::string& sandboxes_dir, const std::string& id, Fd lock);
  // Before the sandbox is purged: nothing of it is mounted then, or in the kernel's table of quotas.
  Result<void> release();

 private:
  friend class SandboxDisks;
  SandboxDisk() = default;

  WorkspaceFs fs_ = WorkspaceFs::kDirectory;
  std::string path_;
  Fd lock_;  // of the sandbox's directory
  Fd home_;
  enum class Mount { kNone, kOwn, kLeft } mount_ = Mount::kNone;
  uint32_t project_ = 0;  // 0: none
  uint64_t enforced_bytes_ = 0;
  std::shared_ptr<DiskQuota> quota_;
};

class SandboxDisks {
 public:
  using Notice = std::function<void(const std::string&)>;

  SandboxDisks(std::string sandboxes_dir, bool as_root, const DiskPolicy& policy = {})
      : sandboxes_dir_(std::move(sandboxes_dir)), as_root_(as_root), policy_(policy) {}
  void set_policy(const DiskPolicy& policy) { policy_ = policy; }  // before all else

  // Unmounts what a backend host that died has left of this backend. Once, at the start.
  void sweep(std::string_view backend, const Notice& notice) const;

  struct Means {
    bool enforced = false;  // a limit, if there is one
    bool limited = false;   // by default
    std::string words;      // "disk: a limit for each sandbox, enforced by project quotas"
    std::string obstacle;   // why no sandbox can be opened with these settings; empty: one can
    [[nodiscard]] uint64_t capabilities() const {
      return enforced ? ISOGATE_CAP_SANDBOX_LIMIT_DISK : ISOGATE_CAP_SANDBOX_DISK_ADVISORY;
    }
  };
  // What bounds a sandbox here and now, for a probe.
  [[nodiscard]] Means look(bool best_effort) const;
  // To be said at the start: that programs, or all sparse images together, can fill the file system that the
  // gateway's own records, in this directory, are on. Empty: they cannot.
  [[nodiscard]] std::string warning(const std::string& records) const;

  struct Wanted {
    std::string id;
    Identity identity;
    uint64_t asked_bytes = 0;  // 0: as the policy says
    bool best_effort = false;
    bool attach_only = false;
    bool to_close = false;  // where it cannot be opened, nothing but its end follows
    bool keep = false;      // what is mounted, and as large as wanted, may be in use and stays so
    bool locked = false;    // whoever asks holds a lock on the sandbox's directory
  };
  // `sandbox`: its directory (O_RDONLY, borrowed). ISOGATE_UNAVAILABLE with EBUSY where another host has it
  // open, with ETXTBSY where something uses its image. ISOGATE_UNSUPPORTED where the limit could only be
  // advisory and that is not enough; ISOGATE_SANDBOX_LOST where attach_only finds no file system.
  Result<std::unique_ptr<SandboxDisk>> open(const Wanted& wanted, int sandbox);
  // The same of one that open() refuses, for its end alone: without a limit, and mounted or not.
  Result<std::unique_ptr<SandboxDisk>> open_to_close(const Wanted& wanted, int sandbox) const;
  // Of a sandbox that is purged without having been opened.
  Result<void> unmount_left(const std::string& id, int sandbox) const;

 private:
  [[nodiscard]] Result<void> projects(int directory) const;
  static Result<uint32_t> project_of(int sandbox, uint32_t uid);
  Result<void> lock(const Wanted& wanted, int sandbox, SandboxDisk& disk) const;
  Result<void> open_directory(const Wanted& wanted, int sandbox, uint64_t bytes, SandboxDisk& disk);
  Result<void> open_loop(const Wanted& wanted, int sandbox, uint64_t bytes, SandboxDisk& disk) const;
  static void use_loop(Fd home, uint64_t bytes, SandboxDisk& disk);
  Result<void> open_tmpfs(const Wanted& wanted, int sandbox, uint64_t bytes, SandboxDisk& disk) const;

  const std::string sandboxes_dir_;
  const bool as_root_;
  DiskPolicy policy_;
  DiskCounter counter_;
};

}  // namespace isogate
