// The limit on the disk of one sandbox on this host, as its backend's settings define it.
//
//   directory  its files are on the file system of the state directory: limited by a project quota if that
//              has them, else counted (runner/files/disk_quota.h)
//   loop       <sandbox>/disk.img, a sparse ext4, checked and mounted at <sandbox>/disk at each open
//   tmpfs      a tmpfs at <sandbox>/disk, which lasts until it is purged or this host ends
//
// With loop, the lock that the kernel's loop device keeps on the image shows whether anything still uses it;
// a lock on the sandbox's directory shows whether a backend host has it open. The next start or open unmounts
// what a dead host has left mounted. A step that fails leaves nothing mounted, and no new image. A sandbox
// that can no longer be opened can be closed and purged. SandboxDisks: any thread. SandboxDisk: one at a
// time, except quota().
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
  uint64_t disk_mb = kStrictLimits.disk_mb;  // of a sandbox without a requested limit; 0: no limit
  bool written = false;                      // by the operator: then it must be enforced
  // No program can change the project of a file, so a project quota is really enforced.
  bool projects_out_of_reach = false;
};

// The settings `disk_mb` and `workspace_fs` of a backend.
void take_disk(const nlohmann::json& config, DiskPolicy& policy);
// How the settings are weaker than the default, in words.
void add_disk(std::vector<std::string>& found, const DiskPolicy& policy);
// Refuses what is not possible. `whose`: "`namespace`", for the message.
void check_disk(const std::string& whose, const DiskPolicy& policy);

class SandboxDisk {
 public:
  ~SandboxDisk();  // unmounts a loop file system that is its own
  SandboxDisk(const SandboxDisk&) = delete;
  SandboxDisk& operator=(const SandboxDisk&) = delete;

  // The directory of the workspace and its staging: O_RDONLY, borrowed, and as a path of this
  // host.
  [[nodiscard]] int home() const { return home_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const std::shared_ptr<DiskQuota>& quota() const { return quota_; }  // null: not limited
  // The limit that the kernel enforces; 0: none.
  [[nodiscard]] uint64_t enforced_bytes() const { return enforced_bytes_; }
  // Adds the limit in force to the measured limits.
  void add_to(isogate_evidence& evidence) const;
  // ISOGATE_UNSUPPORTED: it is neither limited nor counted.
  Result<isogate_disk_use> use() const;
  // A process that outlives this one uses the mount: it stays, for an open() with `keep`. A mount that this
  // object found also stays until hold().
  void leave();
  void hold();
  // The sandbox's directory was renamed to <sandboxes_dir>/<id>; `lock` of it (flock(2)) is this one's now.
  void moved(const std::string& sandboxes_dir, const std::string& id, Fd lock);
  // Call before the sandbox is purged: afterwards nothing of it is mounted, or in the kernel's table
  // of quotas.
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

  // Unmounts what a dead backend host of this backend has left. Once, at the start.
  void sweep(std::string_view backend, const Notice& notice) const;

  struct Means {
    bool enforced = false;  // a limit, if there is one
    std::string words;      // "disk: a limit for each sandbox, enforced by project quotas"
    std::string obstacle;   // why no sandbox can be opened with these settings; empty: one can
    [[nodiscard]] uint64_t capabilities() const {
      return enforced ? ISOGATE_CAP_SANDBOX_LIMIT_DISK : ISOGATE_CAP_SANDBOX_DISK_ADVISORY;
    }
  };
  // How a sandbox's disk is limited here now, for a probe.
  [[nodiscard]] Means look(bool best_effort) const;
  // The warning at start that programs, or all sparse images together, can fill the file system of the
  // gateway's own records, in this directory. Empty: they cannot.
  [[nodiscard]] std::string warning(const std::string& records) const;

  struct Wanted {
    std::string id;
    Identity identity;
    uint64_t asked_bytes = 0;  // 0: as the policy says
    bool best_effort = false;
    bool attach_only = false;
    bool to_close = false;  // it is opened only to be ended, even if its disk cannot be opened
    bool keep = false;      // a mount of the right size may be in use and stays mounted
    bool locked = false;    // the caller holds a lock on the sandbox's directory
  };
  // `sandbox`: its directory (O_RDONLY, borrowed). ISOGATE_UNAVAILABLE with EBUSY if another host has it
  // open, with ETXTBSY if something uses its image. ISOGATE_UNSUPPORTED if the limit must be enforced and
  // could only be advisory; ISOGATE_SANDBOX_LOST if attach_only finds no file system.
  Result<std::unique_ptr<SandboxDisk>> open(const Wanted& wanted, int sandbox);
  // The same for a sandbox that open() refuses, only to end it: without a limit, and mounted or
  // not.
  Result<std::unique_ptr<SandboxDisk>> open_to_close(const Wanted& wanted, int sandbox) const;

 private:
  [[nodiscard]] Result<void> projects(int directory) const;
  static Result<uint32_t> project_of(int sandbox, uint32_t uid);
  Result<void> lock(const Wanted& wanted, int sandbox, SandboxDisk& disk) const;
  Result<void> open_directory(const Wanted& wanted, int sandbox, uint64_t bytes, SandboxDisk& disk);
  Result<void> open_loop(const Wanted& wanted, int sandbox, uint64_t bytes, SandboxDisk& disk) const;
  static Result<void> use_own(Fd home, uint64_t bytes, SandboxDisk& disk);
  Result<void> open_tmpfs(const Wanted& wanted, int sandbox, uint64_t bytes, SandboxDisk& disk) const;

  const std::string sandboxes_dir_;
  const bool as_root_;
  DiskPolicy policy_;
  DiskCounter counter_;
};

// For a sandbox that is purged without having been opened. Missing is OK.
Result<void> unmount_left(const std::string& sandboxes_dir, const std::string& id);

}  // namespace isogate
