#include "runner/files/workspace.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "lib/semaphore.h"
#include "lib/text.h"
#include "runner/files/workspace_identity.h"
#include "runner/files/workspace_kernel.h"
#include "runner/files/workspace_path.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_room.h"
#include "runner/files/workspace_stage.h"
#include "runner/files/workspace_state.h"
#include "runner/files/workspace_transfer.h"
#include "runner/files/workspace_trash.h"
#include "runner/files/workspace_tree.h"
#include "runner/files/workspace_watch.h"

// The one implementation of Workspace; internal to the runner.
namespace isogate {

// What every view (see Workspace::as) of one sandbox shares.
struct WorkspaceState {
  Fd root, staging, host_root;  // O_PATH; staging is empty where writes are staged beside their target
  std::string sandboxes_dir;    // empty: the caller is responsible for the disk
  std::string own_path;         // where the sandbox's programs see the root; empty: nowhere
  Identity owner;
  const std::vector<SharedDir>* shared_dirs = nullptr;
  std::shared_ptr<DiskQuota> quota;  // null: none
  bool attached = false;
  bool completion_follows = false;  // a body may be at its end before its completion is reported
  Semaphore commit;                 // one write at a time between "what is there" and the rename
};

class WorkspaceImpl final : public Workspace {
 public:
  WorkspaceImpl(std::shared_ptr<WorkspaceState> state, const Identity& identity)
      : state_(std::move(state)), identity_(identity) {}

  [[nodiscard]] bool attached() const override { return state_->attached; }
  [[nodiscard]] std::unique_ptr<Workspace> as(const Identity& identity) const override;
  [[nodiscard]] int fd() const override { return state_->root.get(); }
  void set_view(Fd root) override { state_->host_root = std::move(root); }
  void set_own_path(std::string path) override { state_->own_path = std::move(path); }
  Result<Fd> directory(std::string_view cwd) const override;
  Result<isogate_entry> read(const isogate_file_request& request, int cancel_fd) override;
  Result<uint64_t> write(const isogate_file_request& request, int cancel_fd) override;
  Result<void> list(const isogate_file_request& request, const isogate_entry_sink& sink,
                    int cancel_fd) override;
  Result<isogate_entry> stat(const isogate_file_request& request) override;
  Result<void> mkdir(const isogate_file_request& request) override;
  Result<void> move(const isogate_file_request& request, int cancel_fd) override;
  Result<void> remove(const isogate_file_request& request, int cancel_fd) override;
  Result<void> watch(const isogate_file_request& request, int cancel_fd) override;

 private:
  // A path of a request, and the tree it is in.
  struct Target {
    Tree tree;
    PathParts path;
    std::string attempt;  // "cannot read `a/b`"
    [[nodiscard]] Error error(int negative) const { return resolve_error(attempt, tree, negative); }
    [[nodiscard]] Error denied(const std::string& why) const;
    [[nodiscard]] bool is_root() const { return path.parts.empty(); }
  };
  struct Parent {
    Fd fd;                    // O_PATH
    std::vector<Fd> made_in;  // the directories in which missing ones were made
    std::string name;         // of the target in it
  };
  // Where a write goes, and what is there.
  struct Place {
    Parent parent;
    std::optional<struct stat> present;
  };

  Result<Target> find(const isogate_file_request& request, const isogate_str& path, const char* verb) const;
  Result<Target> find_to_change(const isogate_file_request& request, const isogate_str& path,
                                const char* verb, bool needs_name) const;
  Result<Parent> parent_of(const Target& target, bool make_missing) const;
  Result<Parent> make_parents(const Target& target, size_t depth) const;
  static size_t existing_depth(const Target& target, Fd& deepest);
  static Result<Fd> open_regular(const Target& target);

  // How full the sandbox's quota was before a write; none: it has no quota.
  using QuotaBefore = std::optional<DiskUse>;

  Result<Place> place_of(const Target& target, const isogate_file_request& request, bool make_missing) const;
  Result<StagedFile> stage(const Target& target, const isogate_file_request& request, Place& where) const;
  Result<void> receive(StagedFile& staged, const Target& target, int in, int cancel_fd, int complete_fd,
                       uint64_t& bytes, DiskHold& hold) const;
  Result<void> commit(StagedFile& body, uint64_t bytes, const Target& target,
                      const isogate_file_request& request, int cancel_fd, DiskHold& hold);
  Result<void> append(StagedFile& body, uint64_t bytes, const Parent& parent, const Target& target,
                      const isogate_file_request& request, uint32_t mode, int cancel_fd);
  Result<void> place(StagedFile& staged, const Parent& parent, const Target& target,
                     const isogate_file_request& request, uint32_t mode) const;

  // For the bytes written to `file`; null: `hold` already covers it.
  [[nodiscard]] Room room(int file, DiskHold* hold) const;
  // For one more name in `dir`.
  [[nodiscard]] Result<void> room_for_name(int dir) const;
  // False in a shared directory, or with scope sandbox elsewhere.
  [[nodiscard]] bool is_counted(const Target& target) const { return target.tree.fd == state_->root.get(); }
  [[nodiscard]] QuotaBefore quota_before() const;
  // The error of a full file system; that of the quota, if that is what is full.
  [[nodiscard]] Error told_of_quota(const Error& error, const Target& target,
                                    const QuotaBefore& before) const;

  // Waits for other commits (an append copies the whole file), but no longer than its caller does.
  Result<std::unique_lock<Semaphore>> commit_alone(int cancel_fd) const;

  std::shared_ptr<WorkspaceState> state_;
  Identity identity_;
};

namespace {

constexpr const char* kWorkspace = "workspace";
constexpr const char* kStaging = "staging";
constexpr const char* kFiles = "files";    // in staging
constexpr uint64_t kQuotaSlack = 1 << 20;  // a quota with less free than this counts as full
constexpr std::chrono::seconds kPurgePatience{1};

bool is_in_memory(int fd) {
  struct statfs kind {};
  return ::fstatfs(fd, &kind) == 0 && kind.f_type == TMPFS_MAGIC;
}

// An O_PATH directory below `dir`, made with exactly this owner and mode if it is not there.
Result<Fd> own_directory(int dir, const char* name, const Identity& owner, uint32_t mode) {
  const std::string attempt = std::string("cannot make the sandbox's `") + name + "` directory";
  if (::mkdirat(dir, name, 0700) != 0 && errno != EEXIST) return os_error(attempt, errno);
  const Fd made(resolve_child(dir, name, O_RDONLY | O_DIRECTORY));
  if (!made) return os_error(attempt, -made.get());
  if (owner.change && ::fchown(made.get(), owner.uid, owner.gid) != 0) return os_error(attempt, errno);
  if (::fchmod(made.get(), mode) != 0) return os_error(attempt, errno);
  Fd path(resolve_child(dir, name, O_PATH | O_DIRECTORY));
  if (!path) return os_error(attempt, -path.get());
  return path;
}

// Created under another name first, so that a directory `workspace` always has its owner.
Result<Fd> make_workspace(int sandbox, const Identity& owner) {
  const std::string fresh = std::string(kWorkspace) + ".new";
  auto made = own_directory(sandbox, fresh.c_str(), owner, 0700);
  if (!made) return made;
  if (::renameat2(sandbox, fresh.c_str(), sandbox, kWorkspace, RENAME_NOREPLACE) != 0)
    return os_error("cannot make the sandbox's workspace", errno);
  return made;
}

Result<void> check_owner(int workspace, const Identity& identity) {
  struct stat info {};
  if (::fstat(workspace, &info) != 0) return os_error("cannot look at the workspace", errno);
  const uid_t wanted = identity.change ? identity.uid : ::geteuid();
  if (info.st_uid == wanted) return {};
  return Error{ISOGATE_PERMISSION_DENIED, 0,
               "refusing the workspace: it belongs to uid " + std::to_string(info.st_uid) +
                   ", the sandbox to uid " + std::to_string(wanted) +
                   "; was the gateway started by another user before?"};
}

// Records `content` at the first open; later it must be the same.
Result<void> claim(int sandbox, const char* file, const std::string& content, isogate_status otherwise) {
  if (content.empty()) return {};
  for (int tries = 0; tries < 2; ++tries) {
    auto present = read_state_file(sandbox, file);
    if (!present) return present.error();
    if (present->has_value() && **present == content) return {};
    if (present->has_value())
      return Error{otherwise, 0,
                   std::string("the sandbox is recorded with ") + file + " `" + **present + "`, not `" +
                       content + "`: purge it there first, or remove its files by hand"};
    auto made = create_state_file(sandbox, file, content);
    if (!made) return made.error();
  }
  return {};
}

Result<void> prepare_staging(int sandbox, WorkspaceState& state) {
  auto staging = own_directory(sandbox, kStaging, Identity(), 0700);
  if (!staging) return staging.error();
  auto files = own_directory(staging->get(), kFiles, state.owner, 0700);
  if (!files) return files.error();
  const Fd readable(resolve_child(staging->get(), kFiles, O_RDONLY | O_DIRECTORY));
  if (!readable) return os_error("cannot open the sandbox's staging", -readable.get());
  if (auto swept = sweep_staged(readable.get()); !swept) return swept;
  struct stat one {};
  struct stat two {};
  if (::fstat(state.root.get(), &one) != 0 || ::fstat(files->get(), &two) != 0)
    return os_error("cannot look at the workspace", errno);
  if (one.st_dev == two.st_dev) state.staging = std::move(*files);
  return {};
}

Result<void> open_root(int sandbox, const Identity& identity, bool attach_only, WorkspaceState& state) {
  state.root = Fd(resolve_child(sandbox, kWorkspace, O_PATH | O_DIRECTORY));
  state.attached = static_cast<bool>(state.root);
  if (!state.root && state.root.get() != -ENOENT)
    return os_error("cannot open the workspace", -state.root.get());
  if (state.root) return check_owner(state.root.get(), identity);
  if (attach_only) return Error{ISOGATE_SANDBOX_LOST, ENOENT, "the workspace of this sandbox is gone"};
  auto made = make_workspace(sandbox, identity);
  if (!made) return made.error();
  state.root = std::move(*made);
  return {};
}

Result<Fd> sandbox_directory(int sandboxes, const std::string& id, bool attach_only) {
  auto found = open_sandbox_directory(sandboxes, id);
  if (found || found.error().os_errno != ENOENT) return found;
  if (attach_only) return Error{ISOGATE_NO_SANDBOX, ENOENT, "there is no such sandbox"};
  if (auto made = own_directory(sandboxes, id.c_str(), Identity(), 0711); !made) return made;
  return open_sandbox_directory(sandboxes, id);
}

// Only its own agent may pass, so that a workspace that its agent opens to all is still closed to others.
Result<void> close_to_others(int sandbox, const Identity& identity) {
  if (!identity.change) return {};
  if (::fchown(sandbox, static_cast<uid_t>(-1), identity.gid) != 0 || ::fchmod(sandbox, 0710) != 0)
    return os_error("cannot close the sandbox's directory to others", errno);
  return {};
}

}  // namespace

Result<std::unique_ptr<Workspace>> Workspace::open(Options options, bool attach_only) {
  if (!is_sandbox_id(options.sandbox_id)) return malformed_id(options.sandbox_id);
  auto sandboxes = open_state_directory(options.sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  make_room(sandboxes->get());
  auto sandbox = sandbox_directory(sandboxes->get(), options.sandbox_id, attach_only);
  if (!sandbox) return sandbox.error();
  if (auto closed = close_to_others(sandbox->get(), options.identity); !closed) return closed.error();
  auto claimed = claim(sandbox->get(), kBackendFile, options.backend, ISOGATE_ALREADY_EXISTS);
  if (!claimed) return claimed.error();
  const std::string uid = options.identity.change ? std::to_string(options.identity.uid) : "";
  if (claimed = claim(sandbox->get(), kUidFile, uid, ISOGATE_PERMISSION_DENIED); !claimed)
    return claimed.error();

  auto state = std::make_shared<WorkspaceState>();
  state->sandboxes_dir = options.sandboxes_dir;
  state->owner = options.identity;
  state->shared_dirs = options.shared_dirs;
  if (options.host_view) {
    state->host_root = Fd(::open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!state->host_root) return os_error("cannot open the root directory", errno);
  }
  Home home;
  if (options.home) {
    auto found = options.home(sandbox->get());
    if (!found) return found.error();
    home = std::move(*found);
    state->quota = home.quota;
  }
  const int place = home.directory ? home.directory.get() : sandbox->get();
  if (auto ready = open_root(place, options.identity, attach_only, *state); !ready) return ready.error();
  if (auto ready = prepare_staging(place, *state); !ready) return ready.error();
  return std::unique_ptr<Workspace>(std::make_unique<WorkspaceImpl>(std::move(state), options.identity));
}

std::unique_ptr<Workspace> Workspace::at(Fd root, const std::vector<SharedDir>* shared_dirs,
                                         std::shared_ptr<DiskQuota> quota) {
  auto state = std::make_shared<WorkspaceState>();
  state->root = std::move(root);
  state->shared_dirs = shared_dirs;
  state->quota = std::move(quota);
  state->attached = true;
  state->completion_follows = true;
  return std::make_unique<WorkspaceImpl>(std::move(state), Identity());
}

Result<Fd> Workspace::beside(const std::string& sandboxes_dir, const std::string& sandbox_id,
                             const char* name, const Identity& owner, uint32_t mode) {
  if (!is_sandbox_id(sandbox_id)) return malformed_id(sandbox_id);
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  auto sandbox = open_sandbox_directory(sandboxes->get(), sandbox_id);
  if (!sandbox) return sandbox.error();
  return own_directory(sandbox->get(), name, owner, mode);
}

Result<void> Workspace::purge(const std::string& sandboxes_dir, const std::string& sandbox_id,
                              int cancel_fd) {
  if (!is_sandbox_id(sandbox_id)) return malformed_id(sandbox_id);
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  make_room(sandboxes->get());
  return throw_away(sandboxes->get(), sandbox_id, cancel_fd,
                    std::chrono::steady_clock::now() + kPurgePatience);
}

Result<bool> Workspace::exists(const std::string& sandboxes_dir, const std::string& sandbox_id) {
  if (!is_sandbox_id(sandbox_id)) return malformed_id(sandbox_id);
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  const auto sandbox = open_sandbox_directory(sandboxes->get(), sandbox_id);
  if (!sandbox && sandbox.error().os_errno != ENOENT) return sandbox.error();
  return sandbox.ok();
}

Result<std::vector<std::string>> Workspace::enumerate(const std::string& sandboxes_dir,
                                                      const std::string& backend) {
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  std::vector<std::string> found;
  const int code = each_name(sandboxes->get(), [&](const DirReader::Name& name) {
    if (!is_sandbox_id(name.text)) return;
    const auto sandbox = open_sandbox_directory(sandboxes->get(), name.text);
    if (!sandbox) return;
    const auto owner = read_state_file(sandbox->get(), kBackendFile);
    if (owner && *owner == backend) found.push_back(name.text);
  });
  if (code < 0) return os_error("cannot list the sandboxes", -code);
  return found;
}

namespace {

constexpr uint32_t kKnownFlags = ISOGATE_FILE_APPEND | ISOGATE_FILE_DURABLE | ISOGATE_FILE_EXCLUSIVE |
                                 ISOGATE_FILE_PARENTS | ISOGATE_FILE_RECURSIVE | ISOGATE_FILE_MODE_GIVEN |
                                 ISOGATE_FILE_REPLACE;

std::string_view view(const isogate_str& text) { return {text.ptr, text.len}; }

// The shared directory with the longest prefix that `parts` begin with.
const SharedDir* shared_dir_of(const std::vector<SharedDir>* dirs, const PathParts& path, size_t& depth) {
  const SharedDir* found = nullptr;
  depth = 0;
  if (dirs == nullptr) return nullptr;
  for (const SharedDir& dir : *dirs) {
    const auto prefix = parse_path(dir.prefix, ISOGATE_SCOPE_WORKSPACE);
    if (!prefix || prefix->parts.size() <= depth || prefix->parts.size() > path.parts.size()) continue;
    if (!std::equal(prefix->parts.begin(), prefix->parts.end(), path.parts.begin())) continue;
    found = &dir;
    depth = prefix->parts.size();
  }
  return found;
}

Error prefixed(const std::string& attempt, Error error) {
  error.message = attempt + ": " + error.message;
  return error;
}

bool has(const isogate_file_request& request, uint32_t flag) { return (request.flags & flag) != 0; }

// The entry `leaf` in `parent`; an error if a file may not replace it. nullopt: nothing.
Result<std::optional<struct stat>> replaceable(int parent, const std::string& leaf,
                                               const std::string& attempt) {
  struct stat info {};
  if (::fstatat(parent, leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<struct stat>();
    return os_error(attempt, errno);
  }
  if (S_ISDIR(info.st_mode)) return Error{ISOGATE_IS_DIRECTORY, EISDIR, attempt + ": it is a directory"};
  if (S_ISLNK(info.st_mode))
    return busy_error(attempt + ": a program of the sandbox put a symlink in its place meanwhile");
  if (!S_ISREG(info.st_mode))
    return Error{ISOGATE_NOT_REGULAR, 0, attempt + ": it is not a regular file but a FIFO, socket or device"};
  return std::optional<struct stat>(info);
}

// An error where the file is read-only to the identity and the request has no REPLACE.
Result<void> check_writable(const struct stat& file, const isogate_file_request& request,
                            const Identity& identity, const std::string& attempt) {
  if (has(request, ISOGATE_FILE_REPLACE) || mode_lets_write(file, identity)) return {};
  return Error{ISOGATE_PERMISSION_DENIED, EACCES,
               attempt + ": a read-only file is there: its mode " + octal_mode(file.st_mode) +
                   " does not let the sandbox's user write it; `replace=true` replaces it all the same"};
}

}  // namespace

Error WorkspaceImpl::Target::denied(const std::string& why) const {
  return {ISOGATE_PERMISSION_DENIED, 0, attempt + ": " + why};
}

Result<WorkspaceImpl::Target> WorkspaceImpl::find(const isogate_file_request& request,
                                                  const isogate_str& path, const char* verb) const {
  if ((request.flags & ~kKnownFlags) != 0)
    return unknown_bits("the request has unknown flags", request.flags & ~kKnownFlags);
  if (request.mode > 0777) return invalid("mode must be at most 0777");
  if (request.scope > ISOGATE_SCOPE_SANDBOX) return invalid("the request has an unknown scope");
  if (request.scope == ISOGATE_SCOPE_SANDBOX && !state_->host_root)
    return unsupported("scope sandbox is not available: this sandbox has no view of its own here");
  auto parsed = parse_path(view(path), request.scope);
  if (!parsed) return parsed.error();
  Target target;
  target.path = std::move(*parsed);
  target.attempt = std::string("cannot ") + verb + " " + quote_path(view(path));
  target.tree.fd = state_->root.get();
  target.tree.own_path = state_->own_path;
  if (request.scope == ISOGATE_SCOPE_SANDBOX) {
    target.tree.fd = state_->host_root.get();
    target.tree.confined = false;
    return target;
  }
  size_t depth = 0;
  if (const SharedDir* shared = shared_dir_of(state_->shared_dirs, target.path, depth)) {
    target.tree = {shared->root.get(), true, true, "the shared directory"};
    target.path.parts.erase(target.path.parts.begin(), target.path.parts.begin() + static_cast<long>(depth));
  }
  return target;
}

Result<WorkspaceImpl::Target> WorkspaceImpl::find_to_change(const isogate_file_request& request,
                                                            const isogate_str& path, const char* verb,
                                                            bool needs_name) const {
  auto target = find(request, path, verb);
  if (!target) return target;
  if (target->tree.read_only) return target->denied("it is in a read-only shared directory");
  if (needs_name && target->is_root()) return invalid(target->attempt + ": it names the root of its tree");
  return target;
}

// How many leading parts exist, the last one not counted; `deepest` is where they lead.
size_t WorkspaceImpl::existing_depth(const Target& target, Fd& deepest) {
  size_t present = 0, absent = target.path.parts.size();
  while (present + 1 < absent) {
    const size_t middle = (present + absent) / 2;
    Fd fd(resolve(target.tree, target.path.joined(middle), O_PATH | O_DIRECTORY));
    if (!fd && fd.get() != -ENOENT) break;
    if (fd)
      present = middle, deepest = std::move(fd);
    else
      absent = middle;
  }
  if (present == 0) deepest = Fd(resolve(target.tree, ".", O_PATH | O_DIRECTORY));
  return present;
}

Result<WorkspaceImpl::Parent> WorkspaceImpl::make_parents(const Target& target, size_t depth) const {
  Parent parent;
  parent.name = target.path.parts.back();
  const size_t present = existing_depth(target, parent.fd);
  if (!parent.fd) return target.error(parent.fd.get());
  if (auto room = room_for_name(parent.fd.get()); !room) return prefixed(target.attempt, room.error());
  for (size_t i = present; i < depth; ++i) {
    const std::string& name = target.path.parts[i];
    const bool made = ::mkdirat(parent.fd.get(), name.c_str(), 0755) == 0;
    if (!made && errno != EEXIST) return target.error(-errno);
    Fd next(resolve_child(parent.fd.get(), name, O_PATH | O_DIRECTORY));
    if (!next) return target.error(next.get());
    if (made) chmod_by_fd(next.get(), 0755);
    parent.made_in.push_back(std::exchange(parent.fd, std::move(next)));
  }
  return parent;
}

Result<WorkspaceImpl::Parent> WorkspaceImpl::parent_of(const Target& target, bool make_missing) const {
  const size_t depth = target.path.parts.size() - 1;
  Fd fd(resolve(target.tree, target.path.joined(depth), O_PATH | O_DIRECTORY));
  if (fd.get() == -ENOENT && make_missing) return make_parents(target, depth);
  if (!fd) return target.error(fd.get());
  return Parent{std::move(fd), {}, target.path.parts.back()};
}

// The type is checked on an O_PATH descriptor, so that a FIFO or a device is never opened.
Result<Fd> WorkspaceImpl::open_regular(const Target& target) {
  const std::string path = target.path.path();
  const Fd found(resolve(target.tree, path, O_PATH));
  if (!found) return target.error(found.get());
  struct stat info {};
  if (::fstat(found.get(), &info) != 0) return target.error(-errno);
  if (S_ISDIR(info.st_mode))
    return Error{ISOGATE_IS_DIRECTORY, EISDIR, target.attempt + ": it is a directory"};
  if (!S_ISREG(info.st_mode))
    return Error{ISOGATE_NOT_REGULAR, 0,
                 target.attempt + ": it is not a regular file but a FIFO, socket or device"};
  constexpr int kFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  Fd file(reopen(found.get(), kFlags));
  if (file.get() == -ENOSYS) file = Fd(resolve(target.tree, path, kFlags));
  struct stat again {};
  if (file.get() == -EWOULDBLOCK)
    return busy_error(target.attempt + ": a program of the sandbox has a lease on it (fcntl F_SETLEASE)");
  if (!file) return target.error(file.get());
  if (::fstat(file.get(), &again) != 0) return target.error(-errno);
  if (again.st_dev != info.st_dev || again.st_ino != info.st_ino) return target.error(-ESTALE);
  return file;
}

std::unique_ptr<Workspace> WorkspaceImpl::as(const Identity& identity) const {
  return std::make_unique<WorkspaceImpl>(state_, identity);
}

Result<Fd> WorkspaceImpl::directory(std::string_view cwd) const {
  auto path = parse_path(cwd, ISOGATE_SCOPE_WORKSPACE);
  if (!path) return path.error();
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  Tree tree;
  tree.fd = state_->root.get();
  Fd fd(resolve(tree, path->path(), O_PATH | O_DIRECTORY));
  if (fd) return fd;
  Error error = resolve_error("cannot use " + quote_path(cwd) + " as working directory", tree, fd.get());
  error.status = ISOGATE_INVALID_ARGUMENT;
  return error;
}

Result<isogate_entry> WorkspaceImpl::read(const isogate_file_request& request, int cancel_fd) {
  auto target = find(request, request.path, "read");
  if (!target) return target.error();
  Result<Fd> file = [&]() -> Result<Fd> {
    const FsIdentity as_tenant(identity_);
    if (as_tenant.error()) return *as_tenant.error();
    return open_regular(*target);
  }();
  if (!file) return file.error();
  struct stat info {};
  if (::fstat(file->get(), &info) != 0) return target->error(-errno);
  isogate_entry entry = entry_of(info);
  if (is_kernel_file(file->get(), info)) {
    auto read = read_kernel_file(file->get(), info, identity_, request, cancel_fd);
    if (!read) return prefixed(target->attempt, read.error());
    return read;
  }
  const uint64_t begin = std::min(request.offset, entry.size);
  const uint64_t count = std::min(request.limit, entry.size - begin);
  auto sent = pump_out(file->get(), begin, count, request.fd, cancel_fd);
  if (!sent) return prefixed(target->attempt, sent.error());
  if (*sent < count && ::fstat(file->get(), &info) == 0) entry = entry_of(info);
  return entry;
}

Result<void> WorkspaceImpl::list(const isogate_file_request& request, const isogate_entry_sink& sink,
                                 int cancel_fd) {
  auto target = find(request, request.path, "list");
  if (!target) return target.error();
  Fd top = [&] {
    const FsIdentity as_tenant(identity_);
    return Fd(as_tenant.error() ? -EPERM
                                : resolve(target->tree, target->path.path(), O_RDONLY | O_DIRECTORY));
  }();
  if (!top) return target->error(top.get());
  const bool recursive = (request.flags & ISOGATE_FILE_RECURSIVE) != 0;
  auto listed = list_tree(top.get(), recursive, request.limit, identity_, sink, cancel_fd);
  if (!listed) return prefixed(target->attempt, listed.error());
  return {};
}

Result<void> WorkspaceImpl::watch(const isogate_file_request& request, int cancel_fd) {
  auto target = find(request, request.path, "watch");
  if (!target) return target.error();
  const Watched watched = {.tree = target->tree,
                           .path = target->path.path(),
                           .recursive = has(request, ISOGATE_FILE_RECURSIVE),
                           .identity = identity_};
  auto done = watch_directory(watched, request.fd, cancel_fd);
  if (done) return done;
  if (done.error().message.empty()) return target->error(-done.error().os_errno);
  return prefixed(target->attempt, done.error());
}

Result<isogate_entry> WorkspaceImpl::stat(const isogate_file_request& request) {
  auto target = find(request, request.path, "look at");
  if (!target) return target.error();
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  const Fd found(resolve(target->tree, target->path.path(), O_PATH | O_NOFOLLOW));
  if (!found) return target->error(found.get());
  struct stat info {};
  if (::fstat(found.get(), &info) != 0) return target->error(-errno);
  return entry_of(info);
}

namespace {

Error already_there(const std::string& attempt, const char* why) {
  return {ISOGATE_ALREADY_EXISTS, EEXIST, attempt + ": " + why};
}

}  // namespace

Result<void> WorkspaceImpl::mkdir(const isogate_file_request& request) {
  auto target = find_to_change(request, request.path, "make directory", false);
  if (!target) return target.error();
  const bool exclusive = (request.flags & ISOGATE_FILE_EXCLUSIVE) != 0;
  const QuotaBefore before = quota_before();
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  if (target->is_root())
    return exclusive ? Result<void>(already_there(target->attempt, "it is there")) : Result<void>();
  const bool counted = is_counted(*target);
  DiskHold hold(counted ? state_->quota.get() : nullptr);
  auto held = hold.grow_to(1);
  auto parent = parent_of(*target, held.ok() && (request.flags & ISOGATE_FILE_PARENTS) != 0);
  if (!held && !parent) return told_of_quota(prefixed(target->attempt, held.error()), *target, before);
  if (!parent) return parent.error();
  if (state_->quota != nullptr && !parent->made_in.empty()) state_->quota->changed();
  const std::string& name = target->path.parts.back();
  const uint32_t mode = request.mode == 0 ? 0755 : request.mode;
  if (held) held = room_for_name(parent->fd.get());
  if (!held && ::faccessat(parent->fd.get(), name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0)
    return told_of_quota(prefixed(target->attempt, held.error()), *target, before);
  if (::mkdirat(parent->fd.get(), name.c_str(), mode) == 0) {
    hold.wrote(0, 1);
    if (state_->quota != nullptr && !counted) state_->quota->changed();
    const Fd made(resolve_child(parent->fd.get(), name, O_PATH | O_DIRECTORY));  // the umask is not ours
    if (made) chmod_by_fd(made.get(), mode);
    return {};
  }
  if (errno != EEXIST) return told_of_quota(target->error(-errno), *target, before);
  if (exclusive) return already_there(target->attempt, "it is there");
  const Fd present(
      resolve(target->tree, target->path.joined(target->path.parts.size()), O_PATH | O_DIRECTORY));
  if (present) return {};
  if (present.get() == -ENOTDIR || present.get() == -ENOENT)
    return already_there(target->attempt, "something that is no directory is there");
  return target->error(present.get());
}

Result<void> WorkspaceImpl::move(const isogate_file_request& request, int cancel_fd) {
  auto from = find_to_change(request, request.path, "move", true);
  if (!from) return from.error();
  auto to = find_to_change(request, request.path_to, "move to", true);
  if (!to) return to.error();
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  auto source = parent_of(*from, false);
  if (!source) return source.error();
  if (::faccessat(source->fd.get(), from->path.parts.back().c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0)
    return from->error(-errno);
  auto target = parent_of(*to, (request.flags & ISOGATE_FILE_PARENTS) != 0);
  if (!target) return target.error();
  const unsigned flags = (request.flags & ISOGATE_FILE_EXCLUSIVE) != 0 ? RENAME_NOREPLACE : 0U;
  const auto one = commit_alone(cancel_fd);
  if (!one) return prefixed(from->attempt, one.error());
  struct stat present {};
  const bool replaces =
      ::fstatat(target->fd.get(), to->path.parts.back().c_str(), &present, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISREG(present.st_mode) && flags == 0;
  if (replaces)
    if (auto writable = check_writable(present, request, identity_, to->attempt); !writable) return writable;
  if (::renameat2(source->fd.get(), from->path.leaf().c_str(), target->fd.get(), to->path.leaf().c_str(),
                  flags) == 0) {
    if (state_->quota != nullptr) state_->quota->changed();  // the replaced file is gone
    return {};
  }
  if (errno == EXDEV) return unsupported(to->attempt + ": it is on another file system");
  return to->error(-errno);
}

Result<void> WorkspaceImpl::remove(const isogate_file_request& request, int cancel_fd) {
  auto target = find_to_change(request, request.path, "remove", true);
  if (!target) return target.error();
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  auto parent = parent_of(*target, false);
  if (!parent) return parent.error();
  const std::string leaf = target->path.leaf();
  struct Recount {
    DiskQuota* quota;
    ~Recount() {
      if (quota != nullptr) quota->changed();
    }
  } const afterwards{state_->quota.get()};
  struct stat info {};
  const bool counted = state_->quota != nullptr && is_counted(*target) &&
                       ::fstatat(parent->fd.get(), leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  if (::unlinkat(parent->fd.get(), leaf.c_str(), 0) == 0) {
    if (counted && info.st_nlink == 1) state_->quota->wrote(-info.st_blocks * 512, -1);
    return {};
  }
  if (errno != EISDIR) return target->error(-errno);
  if (::unlinkat(parent->fd.get(), leaf.c_str(), AT_REMOVEDIR) == 0) return {};
  if (errno != ENOTEMPTY || (request.flags & ISOGATE_FILE_RECURSIVE) == 0) return target->error(-errno);
  auto removed = remove_tree(parent->fd.get(), target->path.parts.back(), cancel_fd);
  if (!removed) removed.error().message = target->attempt + ": " + removed.error().message;
  return removed;
}

namespace {

constexpr uint32_t kNewFileMode = 0644;
constexpr std::chrono::seconds kPatience{30};  // with the writes before it

Fd open_to_sync(int path_fd) { return Fd(::openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }

// A directory that its owner may search but not read is opened with this process's own rights: the directory
// itself, whatever its name is now. A process without more rights than the tenant syncs the whole file
// system.
int sync_directory(int path_fd, const Identity& tenant, int file) {
  Fd dir = open_to_sync(path_fd);
  if (!dir && tenant.change) {
    const FsIdentity as_host = FsIdentity::of_this_process(true);
    if (!as_host.error()) dir = open_to_sync(path_fd);
  }
  if (!dir && tenant.change) return -errno;
  return (dir ? ::fsync(dir.get()) : ::syncfs(file)) == 0 ? 0 : -errno;
}

}  // namespace

// Behind the symlinks in its last component, whose target already has its directory. Without `make_missing`
// the deepest of its directories stands in for missing ones.
Result<WorkspaceImpl::Place> WorkspaceImpl::place_of(const Target& target,
                                                     const isogate_file_request& request,
                                                     bool make_missing) const {
  const size_t depth = target.path.parts.size();
  Leaf leaf;
  const int code = resolve_leaf(target.tree, target.path.joined(depth), leaf);
  Place where;
  if (code == -ENOENT && leaf.links == 0 && has(request, ISOGATE_FILE_PARENTS)) {
    auto parent = make_parents(target, make_missing ? depth - 1 : 0);
    if (!parent) return parent.error();
    where.parent = std::move(*parent);
    if (!make_missing) return where;
  } else if (code < 0) {
    return target.error(code);
  } else {
    if (leaf.links > 0 && has(request, ISOGATE_FILE_EXCLUSIVE)) return target.error(-EEXIST);
    where.parent = {std::move(leaf.parent), {}, std::move(leaf.name)};
  }
  auto present = replaceable(where.parent.fd.get(), where.parent.name, target.attempt);
  if (!present) return present.error();
  where.present = *present;
  if (where.present && !has(request, ISOGATE_FILE_EXCLUSIVE))
    if (auto writable = check_writable(*where.present, request, identity_, target.attempt); !writable)
      return writable.error();
  return where;
}

// Checks whether the write can succeed, before any byte of the body is read, and creates the staged file.
Result<StagedFile> WorkspaceImpl::stage(const Target& target, const isogate_file_request& request,
                                        Place& where) const {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  auto found = place_of(target, request, false);
  if (!found) return found.error();
  where = std::move(*found);
  const bool apart = target.tree.confined && state_->staging && identity_.change == state_->owner.change &&
                     identity_.uid == state_->owner.uid;
  auto staged = StagedFile::create(apart ? state_->staging.get() : where.parent.fd.get(), identity_, !apart);
  if (!staged) staged.error().message = target.attempt + ": " + staged.error().message;
  return staged;
}

// With scope sandbox it may be another disk; the disk that the sandboxes share counts. What is written to a
// tmpfs counts in this process's cgroup, whose tmpfs it may be.
Room WorkspaceImpl::room(int file, DiskHold* hold) const {
  return [this, file, hold, in_memory = is_in_memory(file)]() -> Result<void> {
    const off_t written = hold != nullptr ? ::lseek(file, 0, SEEK_CUR) : -1;
    if (written > 0)
      if (auto held = hold->grow_to(static_cast<uint64_t>(written)); !held) return held;
    if (state_->sandboxes_dir.empty()) return {};
    return in_memory ? room_in_memory() : room_for_upload(state_->sandboxes_dir);
  };
}

Result<void> WorkspaceImpl::room_for_name(int dir) const {
  return !state_->sandboxes_dir.empty() && is_in_memory(dir) ? room_in_memory() : Result<void>();
}

WorkspaceImpl::QuotaBefore WorkspaceImpl::quota_before() const {
  if (state_->quota == nullptr) return {};
  const auto use = state_->quota->known();
  return use && use->limit_bytes != 0 ? QuotaBefore(*use) : QuotaBefore();
}

Error WorkspaceImpl::told_of_quota(const Error& error, const Target& target,
                                   const QuotaBefore& before) const {
  if (!before || (error.os_errno != EDQUOT && error.os_errno != ENOSPC)) return error;
  const FsIdentity as_host = FsIdentity::of_this_process(identity_.change);  // to read a project's quota
  if (as_host.error()) return error;
  const auto now = state_->quota->use();
  if (error.os_errno == ENOSPC) {
    const bool full = now && (now->used_bytes + kQuotaSlack >= now->limit_bytes ||
                              (now->limit_files != 0 && now->used_files >= now->limit_files));
    if (!full) return error;  // of another file system
  }
  // The kernel counts staged files; the count does not, and may be newer than before.
  const DiskUse& use = now && !now->enforced ? *now : *before;
  return {ISOGATE_RESOURCE_EXHAUSTED, EDQUOT,
          target.attempt + ": it does not fit into the disk quota of its sandbox: " +
              std::to_string(use.used_bytes) + " of " + std::to_string(use.limit_bytes) + " bytes and " +
              std::to_string(use.used_files) + " of " + std::to_string(use.limit_files) +
              " files are used; nothing was changed: remove files, or ask the operator for a larger "
              "limits.disk_mb"};
}

Result<void> WorkspaceImpl::receive(StagedFile& staged, const Target& target, int in, int cancel_fd,
                                    int complete_fd, uint64_t& bytes, DiskHold& hold) const {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  auto got = pump_in(in, staged.fd(), cancel_fd, room(staged.fd(), &hold));
  if (got)
    if (auto held = hold.grow_to(*got); !held) got = held.error();
  if (got && complete_fd >= 0 && state_->completion_follows) {
    if (auto ready = wait_readable(complete_fd, cancel_fd); !ready) got = ready.error();
  }
  if (got && complete_fd >= 0 && !is_signalled(complete_fd))
    got = Error{ISOGATE_CANCELLED, 0, "its sender went away before the body was complete"};
  if (!got) return prefixed(target.attempt, got.error());
  bytes = *got;
  return {};
}

Result<void> WorkspaceImpl::place(StagedFile& staged, const Parent& parent, const Target& target,
                                  const isogate_file_request& request, uint32_t mode) const {
  if (::fchmod(staged.fd(), mode) != 0) return target.error(-errno);
  const bool durable = has(request, ISOGATE_FILE_DURABLE);
  if (durable && ::fdatasync(staged.fd()) != 0) return target.error(-errno);
  const int code = staged.commit(parent.fd.get(), parent.name, has(request, ISOGATE_FILE_EXCLUSIVE));
  if (code < 0) return target.error(code);
  if (!durable) return {};
  if (const int synced = sync_directory(parent.fd.get(), identity_, staged.fd()); synced < 0)
    return target.error(synced);
  for (const Fd& dir : parent.made_in)
    if (const int synced = sync_directory(dir.get(), identity_, staged.fd()); synced < 0)
      return target.error(synced);
  return {};
}

Result<std::unique_lock<Semaphore>> WorkspaceImpl::commit_alone(int cancel_fd) const {
  if (state_->commit.lock(cancel_fd, kPatience)) return std::unique_lock(state_->commit, std::adopt_lock);
  if (is_signalled(cancel_fd)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
  return busy_error("another write to this sandbox takes too long");
}

Result<void> WorkspaceImpl::commit(StagedFile& body, uint64_t bytes, const Target& target,
                                   const isogate_file_request& request, int cancel_fd, DiskHold& hold) {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  const auto one = commit_alone(cancel_fd);
  if (!one) return prefixed(target.attempt, one.error());
  const auto where = place_of(target, request, true);
  if (!where) return where.error();
  const Parent& parent = where->parent;
  const auto& present = where->present;
  if (present && has(request, ISOGATE_FILE_EXCLUSIVE)) return target.error(-EEXIST);
  uint32_t mode = present ? present->st_mode & 0777 : kNewFileMode;
  if (has(request, ISOGATE_FILE_MODE_GIVEN)) mode = request.mode;
  const bool appends = present && has(request, ISOGATE_FILE_APPEND);
  auto done = appends ? append(body, bytes, parent, target, request, mode, cancel_fd)
                      : place(body, parent, target, request, mode);
  if (done && state_->quota != nullptr && !is_counted(target)) {
    state_->quota->changed();
  } else if (done && state_->quota != nullptr) {
    const bool linked = present && present->st_nlink > 1;  // its other names keep it
    const int64_t replaced = present && !appends && !linked ? present->st_blocks * 512 : 0;
    hold.wrote(static_cast<int64_t>(bytes) - replaced, present && !linked ? 0 : 1);
    if (!parent.made_in.empty()) state_->quota->changed();
  }
  return done;
}

Result<void> WorkspaceImpl::append(StagedFile& body, uint64_t bytes, const Parent& parent,
                                   const Target& target, const isogate_file_request& request, uint32_t mode,
                                   int cancel_fd) {
  Target leaf = target;
  leaf.tree.fd = parent.fd.get();
  leaf.tree.confined = true;
  leaf.tree.own_path = {};
  leaf.path.parts = {parent.name};
  auto old = open_regular(leaf);
  if (!old) return old.error();
  struct stat info {};
  if (::fstat(old->get(), &info) != 0) return target.error(-errno);
  auto whole = body.sibling();
  if (!whole) return prefixed(target.attempt, whole.error());
  const Room left = room(whole->fd(), nullptr);
  auto copied = copy_file(old->get(), static_cast<uint64_t>(info.st_size), whole->fd(), cancel_fd, left);
  if (copied) copied = copy_file(body.fd(), bytes, whole->fd(), cancel_fd, left);
  if (!copied) return prefixed(target.attempt, copied.error());
  return place(*whole, parent, target, request, mode);
}

Result<uint64_t> WorkspaceImpl::write(const isogate_file_request& request, int cancel_fd) {
  auto target = find_to_change(request, request.path, "write", true);
  if (!target) return target.error();
  if (target->path.directory_only) return invalid(target->attempt + ": the path names a directory");
  const QuotaBefore before = quota_before();
  DiskHold hold(is_counted(*target) ? state_->quota.get() : nullptr);
  const auto held = hold.grow_to(1);
  Place where;
  auto staged = stage(*target, request, where);
  if (!staged) return told_of_quota(staged.error(), *target, before);
  if (!held && !where.present)  // emptying a file needs no room
    return told_of_quota(prefixed(target->attempt, held.error()), *target, before);
  uint64_t bytes = 0;
  auto done = hold.cover(staged->fd());
  if (done) done = receive(*staged, *target, request.fd, cancel_fd, request.complete_fd, bytes, hold);
  if (done) done = commit(*staged, bytes, *target, request, cancel_fd, hold);
  if (!done) return told_of_quota(done.error(), *target, before);
  return bytes;
}

}  // namespace isogate
