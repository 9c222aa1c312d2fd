// The files of one sandbox on this host, reached so that no path a tenant can make leads outside.
//
// Every operation starts at a directory descriptor, resolves with openat2(RESOLVE_BENEATH |
// RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV), runs with the sandbox's fsuid and fsgid where identities
// change, looks at the type on the descriptor, and never blocks on what it opened. Nothing here
// builds a path string from a tenant's. Any thread, concurrently.
//
// On disk: <sandboxes_dir>/<sandbox_id>/ (root's, 0710 with the sandbox's group) holds workspace/ (the
// sandbox's uid, 0700), staging/ (root's, 0700) with files/ in it (the sandbox's uid, 0700: where a write
// lives until it is renamed into place, out of the tenant's reach and with the tenant's ownership and quota),
// `backend` (whose sandbox it is) and `uid` (see uid_registry.h). workspace/ is made last: if it exists,
// everything exists. A backend may have further directories beside it: beside(). If a sandbox has its own
// file system, workspace/ and staging/ are in it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runner/exec/command.h"
#include "runner/files/disk_quota.h"

namespace isogate {

struct SharedDir {
  std::string prefix;
  Fd root;  // O_PATH
};

class Workspace {
 public:
  struct Home {
    Fd directory;                      // where workspace/ and staging/ are; O_RDONLY
    std::shared_ptr<DiskQuota> quota;  // null: none
  };
  struct Options {
    std::string sandboxes_dir, sandbox_id;
    Identity identity;
    const std::vector<SharedDir>* shared_dirs = nullptr;  // read-only trees under their prefixes; outlives us
    bool host_view = false;  // ISOGATE_SCOPE_SANDBOX means this host's files, as identity; see set_view()
    std::string backend;  // recorded at the first open; another backend's sandbox is refused. Empty: not kept
    // Called once, with the sandbox's own directory (borrowed), before anything else is made in it.
    // Empty: there.
    std::function<Result<Home>(int sandbox)> home = {};
  };
  // Makes the directories unless attach_only. Errors: ISOGATE_NO_SANDBOX when attach_only finds nothing,
  // ISOGATE_SANDBOX_LOST when it finds the sandbox without its workspace (an open that is not attach_only
  // then starts an empty one), ISOGATE_ALREADY_EXISTS for another backend's, ISOGATE_PERMISSION_DENIED
  // for a workspace of another uid. What a crash left in staging is removed.
  static Result<std::unique_ptr<Workspace>> open(Options options, bool attach_only);
  // A directory (O_PATH) that the caller made and is responsible for: accessed as this process, and staged
  // beside the targets. There the completion of a body is reported separately from the body: write() waits
  // for it.
  static std::unique_ptr<Workspace> at(Fd root, const std::vector<SharedDir>* shared_dirs = nullptr,
                                       std::shared_ptr<DiskQuota> quota = nullptr);
  virtual ~Workspace() = default;

  // True when open() found the workspace, false when it made it.
  [[nodiscard]] virtual bool attached() const = 0;
  // The same files as another identity; shares everything with this one and may outlive it.
  [[nodiscard]] virtual std::unique_ptr<Workspace> as(const Identity& identity) const = 0;

  // The workspace itself, O_PATH; borrowed.
  [[nodiscard]] virtual int fd() const = 0;
  // From now on ISOGATE_SCOPE_SANDBOX means the tree below this O_PATH directory, as identity. Before
  // the first verb.
  virtual void set_view(Fd root) = 0;
  // The path at which the sandbox's programs see the workspace: an absolute symlink to a path below it
  // stays within the workspace, for the verbs but not for directory(). Without this call, every absolute
  // symlink leads out. Before the first verb.
  virtual void set_own_path(std::string path) = 0;
  // An O_PATH directory for fchdir; `cwd` as in isogate_exec_request, relative or /workspace/… only. Every
  // fault of the path (absent, a file, a way out) is ISOGATE_INVALID_ARGUMENT.
  virtual Result<Fd> directory(std::string_view cwd) const = 0;

  // The verbs of backend.h, with these particulars. Paths: at most 4,095 bytes, components at most 255, no
  // `..`, `.` and repeated slashes mean nothing, anything else is literal. A path that leaves its tree is
  // ISOGATE_PERMISSION_DENIED, as is any change below a shared directory.

  // ISOGATE_CANCELLED when cancel_fd fires or the reader has closed. If the file shrinks meanwhile, it writes
  // the remaining bytes, and the entry has the new size.
  virtual Result<isogate_entry> read(const isogate_file_request& request, int cancel_fd) = 0;
  // Follows symlinks that stay in the tree, also as the last component: it replaces or creates their target,
  // in the target's directory, and the symlinks stay. Never writes through a hard link. Staged in
  // staging/files; with ISOGATE_SCOPE_SANDBOX, or as another user, beside its target as `.isogate-….part`,
  // which a crash may leave there. Writes to one sandbox are ordered at their commit, so that no append is
  // lost; a program that holds the old file open keeps the old bytes.
  virtual Result<uint64_t> write(const isogate_file_request& request, int cancel_fd) = 0;
  // Unsorted. RECURSIVE follows no symlinks and skips other mounts and directories that the identity may not
  // read. ISOGATE_RESOURCE_EXHAUSTED with ENAMETOOLONG, after all the rest, when there are directories deeper
  // than a path of 4,095 bytes can name. Bounded memory and descriptors.
  virtual Result<void> list(const isogate_file_request& request, const isogate_entry_sink& sink,
                            int cancel_fd) = 0;
  virtual Result<isogate_entry> stat(const isogate_file_request& request) = 0;
  virtual Result<void> mkdir(const isogate_file_request& request) = 0;
  virtual Result<void> move(const isogate_file_request& request, int cancel_fd) = 0;
  // RECURSIVE removes any depth, also directories that are closed to their owner (mode 000), and never
  // enters another mount.
  virtual Result<void> remove(const isogate_file_request& request, int cancel_fd) = 0;

  // See workspace_watch.h.
  virtual Result<void> watch(const isogate_file_request& request, int cancel_fd) = 0;

  // An O_PATH directory beside the workspace of an existing sandbox, with exactly this owner and mode.
  static Result<Fd> beside(const std::string& sandboxes_dir, const std::string& sandbox_id, const char* name,
                           const Identity& owner, uint32_t mode);
  // The sandbox's directory is removed when this is OK, and unchanged when it is not; absent is OK. Its files
  // are removed from the trash (workspace_trash.h) for a second, or until cancelled; a TrashSweeper takes the
  // rest.
  static Result<void> purge(const std::string& sandboxes_dir, const std::string& sandbox_id,
                            int cancel_fd = -1);
  // Whether the sandbox's directory exists, with or without its workspace.
  static Result<bool> exists(const std::string& sandboxes_dir, const std::string& sandbox_id);
  // The ids of the sandboxes that open() created here for this backend.
  static Result<std::vector<std::string>> enumerate(const std::string& sandboxes_dir,
                                                    const std::string& backend);
};

}  // namespace isogate
