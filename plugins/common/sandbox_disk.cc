#include "plugins/common/sandbox_disk.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "plugins/common/config_checks.h"
#include "plugins/common/file_system_tools.h"
#include "runner/exec/kept_capabilities.h"
#include "runner/files/workspace.h"
#include "runner/files/workspace_path.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_state.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr uint64_t kMebibyte = 1u << 20;
constexpr const LimitKind& kDisk = kLimitKinds[limit_row(ISOGATE_LIMIT_DISK_BYTES)];
constexpr const char *kImage = "disk.img", *kNewImage = "disk.new", *kMountPoint = "disk",
                     *kFsFile = "workspace_fs", *kProjectFile = "project";
constexpr std::chrono::milliseconds kLookAgain{20};
constexpr int kLooks = 250;  // 5 s in all

// Of all gateways of this host uids are unique, and so are these: of one uid there are several, since what a
// purge has not removed yet is still in the last one.
constexpr uint32_t kProjectBase = 0x49530000, kProjectStep = 0x20000;
constexpr int kProjectsOfUid = 64;

constexpr Kept kToMount[] = {{21, "SYS_ADMIN", "mount a file system of a sandbox's own"}};

const char* name_of(WorkspaceFs fs) {
  return fs == WorkspaceFs::kLoop ? "loop" : fs == WorkspaceFs::kTmpfs ? "tmpfs" : "directory";
}

// `busy`: the errno of what is in use.
Result<void> lock_soon(const Fd& file, const std::string& what, int busy) {
  for (int looks = 0; ::flock(file.get(), LOCK_EX | LOCK_NB) != 0; ++looks) {
    if (errno != EWOULDBLOCK) return os_error("cannot lock " + what, errno);
    if (looks == kLooks)
      return Error{ISOGATE_UNAVAILABLE, busy,
                   what +
                       " is still in use: another backend host, or a process held "
                       "back by the kernel, has it open; try again"};
    std::this_thread::sleep_for(kLookAgain);
  }
  return {};
}

bool is_mount_point(int directory, const char* name) {
  struct statx info {};
  return ::statx(directory, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &info) == 0 &&
         (info.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

Result<void> unmount(const std::string& path) {
  if (::umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
    return os_error("cannot unmount the sandbox's file system", errno);
  return {};
}

// What is mounted at the mount point, open for reading.
Result<Fd> open_mounted(int sandbox, decltype(statfs::f_type) magic) {
  Fd home(::openat(sandbox, kMountPoint, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct statfs info {};
  if (!home || ::fstatfs(home.get(), &info) != 0)
    return os_error("cannot open the sandbox's file system", errno);
  if (info.f_type != magic || !is_mount_point(sandbox, kMountPoint))
    return Error{ISOGATE_INTERNAL, 0, "another file system is mounted in the place of the sandbox's"};
  return home;
}

// Passable for its own agent alone, as the sandbox's directory is.
Result<void> close_to_others(const Fd& home, const Identity& identity) {
  const gid_t gid = identity.change ? identity.gid : ::getegid();
  if (::fchown(home.get(), ::geteuid(), gid) != 0 || ::fchmod(home.get(), 0710) != 0)
    return os_error("cannot close the sandbox's file system to others", errno);
  return {};
}

Error lost() {
  return {ISOGATE_SANDBOX_LOST, ENOENT, "the file system of this sandbox is gone, and its workspace with it"};
}

// The kind that its files were made in; another one would hide them.
Result<void> check_kind(int sandbox, WorkspaceFs wanted, bool attach_only) {
  const auto recorded = read_state_file(sandbox, kFsFile);
  if (!recorded) return recorded.error();
  const bool in_directory = ::faccessat(sandbox, "workspace", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  const std::string kind = recorded->has_value() ? **recorded : in_directory ? "directory" : "";
  if (kind.empty()) {
    if (wanted == WorkspaceFs::kDirectory || attach_only) return {};
    const auto made = create_state_file(sandbox, kFsFile, name_of(wanted));
    return made ? Result<void>() : made.error();
  }
  if (kind == name_of(wanted)) return {};
  return unsupported("its workspace was made with workspace_fs: " + kind + ", and " + name_of(wanted) +
                     " is configured: write " + kind +
                     " again, or purge the sandbox, which removes its files");
}

std::string mib(uint64_t bytes) { return std::to_string(bytes / kMebibyte) + " MiB"; }

}  // namespace

std::optional<WorkspaceFs> workspace_fs_named(std::string_view name) {
  for (const WorkspaceFs each : {WorkspaceFs::kDirectory, WorkspaceFs::kLoop, WorkspaceFs::kTmpfs})
    if (name == name_of(each)) return each;
  return std::nullopt;
}

void take_disk(const nlohmann::json& config, DiskPolicy& policy) {
  policy.disk_mb = config.value("disk_mb", policy.disk_mb);
  policy.written = config.contains("disk_mb") && policy.disk_mb != 0;
  policy.fs = workspace_fs_named(config.value("workspace_fs", "directory")).value();
}

void add_disk(std::vector<std::string>& found, const DiskPolicy& policy) {
  if (policy.disk_mb == 0) found.emplace_back("a sandbox may fill the disk of this host");
  if (policy.disk_mb > kStrictLimits.disk_mb)
    found.push_back("disk_mb is " + std::to_string(policy.disk_mb) + ", not " +
                    std::to_string(kStrictLimits.disk_mb));
}

void check_disk(const std::string& whose, const DiskPolicy& policy) {
  if (policy.disk_mb != 0 && policy.disk_mb < kDisk.least)
    refuse("disk_mb of " + whose + " must be 0 or at least " + std::to_string(kDisk.least));
  if (policy.fs != WorkspaceFs::kDirectory && policy.disk_mb == 0)
    refuse(std::string("workspace_fs: ") + name_of(policy.fs) + " of " + whose +
           " needs a size: write disk_mb");
}

SandboxDisk::~SandboxDisk() {
  if (mount_ != Mount::kOwn || fs_ != WorkspaceFs::kLoop) return;
  // What was removed in it is no part of the image any more. One opened to be closed is only unmounted: its
  // home_ is on this host's own file system.
  fstrim_range all = {0, UINT64_MAX, 0};
  if (quota_ != nullptr && ::syncfs(home_.get()) == 0) (void)::ioctl(home_.get(), FITRIM, &all);
  (void)unmount(path_).ok();
}

void SandboxDisk::leave() {
  if (mount_ == Mount::kOwn) mount_ = Mount::kLeft;
}

void SandboxDisk::hold() {
  if (mount_ == Mount::kLeft) mount_ = Mount::kOwn;
}

void SandboxDisk::moved(const std::string& sandboxes_dir, const std::string& id, Fd lock) {
  path_ = sandboxes_dir + "/" + id + (fs_ == WorkspaceFs::kDirectory ? "" : std::string("/") + kMountPoint);
  lock_ = std::move(lock);
}

void SandboxDisk::add_to(isogate_evidence& evidence) const {
  Limits limits = Limits::of(evidence);
  limits.set(ISOGATE_LIMIT_DISK_BYTES, enforced_bytes_);
  limits.put(evidence);
}

Result<isogate_disk_use> SandboxDisk::use() const {
  if (quota_ == nullptr) return unsupported("the disk of this sandbox is neither limited nor counted");
  const auto found = quota_->use();
  if (!found) return found.error();
  isogate_disk_use use{};
  use.struct_size = sizeof use;
  use.flags = (enforced_bytes_ != 0 ? ISOGATE_DISK_ENFORCED : 0) | (found->exact ? ISOGATE_DISK_EXACT : 0);
  use.used_bytes = found->used_bytes;
  use.limit_bytes = found->limit_bytes;
  use.used_files = found->used_files;
  use.limit_files = found->limit_files;
  return use;
}

Result<void> SandboxDisk::release() {
  if (project_ != 0) {
    if (auto done = limit_project(home_.get(), project_, 0); !done) return done;
    project_ = 0;
  }
  if (mount_ == Mount::kNone) return {};
  if (auto done = unmount(path_); !done) return done;
  mount_ = Mount::kNone;
  return {};
}

Result<void> SandboxDisks::projects(int directory) const {
  if (!as_root_) return unsupported("only root sets project quotas");
  return check_project_quotas(directory);
}

SandboxDisks::Means SandboxDisks::look(bool best_effort) const {
  Means means;
  const std::string size = "disk: a limit for each sandbox, ";
  if (policy_.fs != WorkspaceFs::kDirectory) {
    means.enforced = true;
    means.words = size + "enforced by a file system of its own (workspace_fs: " + name_of(policy_.fs) + ")";
    std::string why;
    if (!as_root_) {
      why = "the gateway was not started by root";
    } else if (const std::string lacking = missing_capabilities(kToMount); !lacking.empty()) {
      why = "root without " + lacking;
    } else if (policy_.fs == WorkspaceFs::kLoop) {
      why = why_no_loop_file_systems();
    }
    if (!why.empty())
      means.obstacle = std::string("workspace_fs: ") + name_of(policy_.fs) + " is not available here: " + why;
    return means;
  }
  const auto directory = open_state_directory(sandboxes_dir_);
  const auto kernel = directory ? projects(directory->get()) : Result<void>(directory.error());
  means.enforced = kernel.ok() && policy_.projects_out_of_reach;
  const std::string remedy =
      "mount the file system of the sandboxes with project quotas (prjquota), or write workspace_fs: loop or "
      "tmpfs";
  if (policy_.disk_mb == 0) {
    means.words = "disk: no default limit";
  } else if (means.enforced) {
    means.words = size + "enforced by project quotas";
  } else {
    const std::string why =
        kernel ? "a program may take its files out of a project quota" : kernel.error().message;
    means.words = size + "advisory (" + why +
                  "): file calls beyond it are refused, programs are not bounded; to "
                  "enforce it, " +
                  remedy;
    if (policy_.written && !best_effort)
      means.obstacle = "disk_mb would only be advisory (" + why + "): " + remedy +
                       ", leave disk_mb out, or write limits.mode: best_effort";
  }
  return means;
}

std::string SandboxDisks::warning(const std::string& records) const {
  struct stat theirs {
  }, own{};
  const bool apart = ::stat(sandboxes_dir_.c_str(), &theirs) != 0 || ::stat(records.c_str(), &own) != 0 ||
                     theirs.st_dev != own.st_dev;
  if (apart) return "";
  const std::string effect = " can fill the file system of `" + records +
                             "`, which stops all sandboxes: put the sandboxes on another file system with "
                             "`workdir`";
  if (policy_.fs == WorkspaceFs::kLoop)
    return "the images of the sandboxes (workspace_fs: loop) are sparse and together" + effect;
  if (policy_.disk_mb == 0 || policy_.fs != WorkspaceFs::kDirectory || look(true).enforced) return "";
  return "a program in a sandbox" + effect +
         ", or mount that file system with project quotas (prjquota), so that the kernel bounds them";
}

void SandboxDisks::sweep(std::string_view backend, const Notice& notice) const {
  const auto sandboxes = open_state_directory(sandboxes_dir_);
  if (!sandboxes || !as_root_) return;
  each_name(sandboxes->get(), [&](const DirReader::Name& each) {
    if (!is_sandbox_id(each.text)) return;
    const auto sandbox = open_sandbox_directory(sandboxes->get(), each.text);
    if (!sandbox || !is_mount_point(sandbox->get(), kMountPoint)) return;
    const auto whose = read_state_file(sandbox->get(), kBackendFile);
    if (!whose || *whose != backend) return;  // what another one left may be in use
    if (::faccessat(sandbox->get(), kImage, F_OK, AT_SYMLINK_NOFOLLOW) != 0) return;  // a tmpfs: it stays
    if (::flock(sandbox->get(), LOCK_EX | LOCK_NB) != 0) return;                      // open elsewhere
    if (auto done = unmount(sandboxes_dir_ + "/" + each.text + "/" + kMountPoint); !done)
      notice(done.error().message);
  });
}

Result<void> unmount_left(const std::string& sandboxes_dir, const std::string& id) {
  const auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  const auto sandbox = open_sandbox_directory(sandboxes->get(), id);
  if (!sandbox && sandbox.error().os_errno != ENOENT) return sandbox.error();
  if (!sandbox || !is_mount_point(sandbox->get(), kMountPoint)) return {};
  return unmount(sandboxes_dir + "/" + id + "/" + kMountPoint);
}

Result<std::unique_ptr<SandboxDisk>> SandboxDisks::open(const Wanted& wanted, int sandbox) {
  const uint64_t bytes = wanted.asked_bytes != 0 ? wanted.asked_bytes : policy_.disk_mb * kMebibyte;
  std::unique_ptr<SandboxDisk> disk(new SandboxDisk);
  disk->fs_ = policy_.fs;
  disk->path_ = sandboxes_dir_ + "/" + wanted.id;
  if (auto kind = check_kind(sandbox, policy_.fs, wanted.attach_only); !kind) return kind.error();
  Result<void> done;
  if (policy_.fs == WorkspaceFs::kDirectory) {
    done = open_directory(wanted, sandbox, bytes, *disk);
  } else {
    disk->path_ += std::string("/") + kMountPoint;
    if (auto locked = lock(wanted, sandbox, *disk); !locked) return locked.error();
    if (::mkdirat(sandbox, kMountPoint, 0700) != 0 && errno != EEXIST)
      return os_error("cannot make the place of the sandbox's file system", errno);
    done = policy_.fs == WorkspaceFs::kLoop ? open_loop(wanted, sandbox, bytes, *disk)
                                            : open_tmpfs(wanted, sandbox, bytes, *disk);
  }
  if (!done) return done.error();
  return disk;
}

Result<void> SandboxDisks::lock(const Wanted& wanted, int sandbox, SandboxDisk& disk) const {
  if (wanted.locked) return {};
  disk.lock_ = Fd(::openat(sandbox, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!disk.lock_) return os_error("cannot open the sandbox's directory", errno);
  return lock_soon(disk.lock_, "the sandbox", EBUSY);
}

Result<std::unique_ptr<SandboxDisk>> SandboxDisks::open_to_close(const Wanted& wanted, int sandbox) const {
  std::unique_ptr<SandboxDisk> disk(new SandboxDisk);
  disk->path_ = sandboxes_dir_ + "/" + wanted.id;
  if (auto locked = lock(wanted, sandbox, *disk); !locked) return locked.error();
  disk->home_ = Fd(::openat(sandbox, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!disk->home_) return os_error("cannot open the sandbox's directory", errno);
  if (is_mount_point(sandbox, kMountPoint)) {
    const bool image = ::faccessat(sandbox, kImage, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
    disk->fs_ = image ? WorkspaceFs::kLoop : WorkspaceFs::kTmpfs;
    disk->path_ += std::string("/") + kMountPoint;
    disk->mount_ = SandboxDisk::Mount::kLeft;
  }
  return disk;
}

// The one that is recorded, else one that is free.
Result<uint32_t> SandboxDisks::project_of(int sandbox, uint32_t uid) {
  const auto recorded = read_state_file(sandbox, kProjectFile);
  if (!recorded) return recorded.error();
  for (int i = 0; i < kProjectsOfUid; ++i) {
    const uint32_t project = kProjectBase + uid + static_cast<uint32_t>(i) * kProjectStep;
    if (recorded->has_value()) {
      if (**recorded == std::to_string(project)) return project;
      continue;
    }
    const auto unused = is_unused_project(sandbox, project);
    if (!unused) return unused.error();
    if (!*unused) continue;
    if (auto made = create_state_file(sandbox, kProjectFile, std::to_string(project)); !made)
      return made.error();
    return project;
  }
  if (recorded->has_value())
    return Error{ISOGATE_INTERNAL, 0, "the sandbox's `project` file names no project of its uid"};
  return Error{ISOGATE_UNAVAILABLE, EAGAIN,
               "what was purged of this agent is still being removed; try again"};
}

namespace {

// What programs and file calls fill. The gateway's own records lie beside it, in no project: otherwise a full
// sandbox could not be opened, and so not be emptied.
Result<void> assign_files(int sandbox, uint32_t project, bool make) {
  const bool there = ::faccessat(sandbox, "workspace", F_OK, AT_SYMLINK_NOFOLLOW) == 0;
  for (const char* name : {"staging", there ? "workspace" : "workspace.new"}) {
    if (make && ::mkdirat(sandbox, name, 0700) != 0 && errno != EEXIST)
      return os_error("cannot make a directory for the sandbox's project", errno);
    const Fd part(resolve_child(sandbox, name, O_RDONLY | O_DIRECTORY));
    if (part.get() == -ENOENT) continue;
    if (!part) return os_error("cannot open a directory to set its project", -part.get());
    if (auto assigned = assign_project(part.get(), project); !assigned) return assigned;
  }
  // An earlier gateway had all of it in the project.
  for (const char* name : {"identity", "gate"}) {
    const Fd records(resolve_child(sandbox, name, O_RDONLY | O_DIRECTORY));
    if (!records) continue;
    if (auto left = leave_project(records.get()); !left) return left;
    for (const char* file : {"passwd", "group"}) {
      const Fd written(resolve_child(records.get(), file, O_RDONLY | O_NONBLOCK));
      if (!written) continue;
      if (auto left = leave_project(written.get()); !left) return left;
    }
  }
  return leave_project(sandbox);
}

}  // namespace

Result<void> SandboxDisks::open_directory(const Wanted& wanted, int sandbox, uint64_t bytes,
                                          SandboxDisk& disk) {
  disk.home_ = Fd(::openat(sandbox, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!disk.home_) return os_error("cannot open the sandbox's directory", errno);
  const auto kernel = projects(sandbox);
  if (kernel && wanted.identity.change) {
    const auto project = project_of(sandbox, wanted.identity.uid);
    if (!project) return project.error();
    disk.project_ = *project;
    if (auto assigned = assign_files(sandbox, disk.project_, !wanted.attach_only); !assigned) return assigned;
    if (auto limited = limit_project(sandbox, disk.project_, bytes); !limited) return limited;
    auto home = copy_of(disk.home_.get());
    if (!home) return home.error();
    disk.quota_ = project_quota(std::move(*home), disk.project_);
    if (policy_.projects_out_of_reach) disk.enforced_bytes_ = bytes;
  } else if (bytes != 0) {
    auto counted = copy_of(disk.home_.get());
    if (!counted) return counted.error();
    const bool fresh = ::faccessat(sandbox, "workspace", F_OK, AT_SYMLINK_NOFOLLOW) != 0;
    disk.quota_ = counter_.quota(std::move(*counted), bytes, fresh);
  }
  const bool asked = wanted.asked_bytes != 0 || policy_.written;
  if (bytes == 0 || disk.enforced_bytes_ != 0 || !asked || wanted.best_effort) return {};
  return unsupported(
      "the disk limit would only be advisory here: mount the file system of the sandboxes with project "
      "quotas "
      "(prjquota), write workspace_fs: loop or tmpfs, or accept that with limits.mode: best_effort");
}

namespace {

bool is_image_of(int sandbox, uint64_t bytes) {
  const Fd image(::openat(sandbox, kImage, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return image && is_file_system_of(image, bytes);
}

// Makes the image, or fits it to the size; locked from then on, by the loop device too.
Result<Fd> ready_image(const std::string& directory, int sandbox, uint64_t bytes, bool attach_only,
                       bool& made) {
  const std::string path = directory + "/" + kImage;
  Fd image(::openat(sandbox, kImage, O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!image && errno != ENOENT) return os_error("cannot open the sandbox's disk image", errno);
  if (!image && attach_only) return lost();
  if (image) {
    if (auto locked = lock_soon(image, "the sandbox's disk image", ETXTBSY); !locked) return locked.error();
    if (auto fit = check_and_fit(path, image, bytes); !fit) return fit.error();
    return image;
  }
  (void)::unlinkat(sandbox, kNewImage, 0);  // of an attempt that a crash ended
  image = Fd(::openat(sandbox, kNewImage, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!image) return os_error("cannot make the sandbox's disk image", errno);
  auto done = make_file_system(directory + "/" + kNewImage, image, bytes);
  if (done) done = lock_soon(image, "the sandbox's disk image", ETXTBSY);
  if (done && ::renameat2(sandbox, kNewImage, sandbox, kImage, RENAME_NOREPLACE) != 0)
    done = os_error("cannot place the sandbox's disk image", errno);
  if (!done) {
    (void)::unlinkat(sandbox, kNewImage, 0);
    return done.error();
  }
  made = true;
  return image;
}

}  // namespace

Result<void> SandboxDisks::use_own(Fd home, uint64_t bytes, SandboxDisk& disk) {
  auto copy = copy_of(home.get());
  if (!copy) return copy.error();
  disk.home_ = std::move(home);
  disk.mount_ = SandboxDisk::Mount::kOwn;
  disk.enforced_bytes_ = bytes;
  disk.quota_ = file_system_quota(std::move(*copy));
  return {};
}

Result<void> SandboxDisks::open_loop(const Wanted& wanted, int sandbox, uint64_t bytes,
                                     SandboxDisk& disk) const {
  if (is_mount_point(sandbox, kMountPoint)) {  // a host that ended left it
    if (wanted.keep && is_image_of(sandbox, bytes)) {
      auto home = open_mounted(sandbox, EXT4_SUPER_MAGIC);
      if (!home) return home.error();
      auto used = use_own(std::move(*home), bytes, disk);
      if (used) disk.leave();
      return used;
    }
    if (auto gone = unmount(disk.path_); !gone) return gone;
  }
  bool made = false;
  const std::string directory = sandboxes_dir_ + "/" + wanted.id;
  auto image = ready_image(directory, sandbox, bytes, wanted.attach_only, made);
  if (!image) return image.error();
  auto done = mount_loop(*image, disk.path_);
  const bool mounted = done.ok();
  if (done) {
    auto home = open_mounted(sandbox, EXT4_SUPER_MAGIC);
    done = home ? close_to_others(*home, wanted.identity) : Result<void>(home.error());
    if (done) (void)::unlinkat(home->get(), "lost+found", AT_REMOVEDIR);  // e2fsck makes it when it needs it
    if (done) done = use_own(std::move(*home), bytes, disk);
  }
  if (!done) {
    if (mounted) (void)unmount(disk.path_).ok();
    if (made) (void)::unlinkat(sandbox, kImage, 0);
  }
  return done;
}

Result<void> SandboxDisks::open_tmpfs(const Wanted& wanted, int sandbox, uint64_t bytes,
                                      SandboxDisk& disk) const {
  const std::string options =
      "size=" + std::to_string(bytes) + ",nr_inodes=" + std::to_string(bytes / kBytesPerInode) + ",mode=710";
  const bool there = is_mount_point(sandbox, kMountPoint);
  if (!there && wanted.attach_only) return lost();
  const unsigned long flags = MS_NOSUID | MS_NODEV | (there ? MS_REMOUNT : 0);
  if (::mount("isogate", disk.path_.c_str(), "tmpfs", flags, options.c_str()) != 0) {
    if (there && errno == EINVAL)
      return unsupported("the sandbox has more files than " + mib(bytes) + ": raise disk_mb, or remove some");
    return os_error("cannot mount the sandbox's tmpfs", errno);
  }
  auto home = open_mounted(sandbox, TMPFS_MAGIC);
  auto done = home ? close_to_others(*home, wanted.identity) : Result<void>(home.error());
  if (done) done = use_own(std::move(*home), bytes, disk);
  if (!done && !there) (void)unmount(disk.path_).ok();
  return done;
}

}  // namespace isogate
