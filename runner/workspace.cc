#include "runner/workspace.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runner/workspace_impl.h"
#include "runner/workspace_state.h"
#include "runner/workspace_trash.h"
#include "runner/workspace_tree.h"

namespace isogate {
namespace {

constexpr const char* kWorkspace = "workspace";
constexpr const char* kStaging = "staging";
constexpr const char* kFiles = "files";  // in staging
constexpr std::chrono::seconds kPurgePatience{1};

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

// Made under another name first, so that a directory called `workspace` always has its owner.
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
                       content + "`: purge it there first"};
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

// Passable for its own agent alone, so that a workspace its agent opens to all is still open to none.
Result<void> close_to_others(int sandboxes, const std::string& id, const Identity& identity) {
  if (!identity.change) return {};
  const Fd directory(resolve_child(sandboxes, id.c_str(), O_RDONLY | O_DIRECTORY));
  if (!directory || ::fchown(directory.get(), static_cast<uid_t>(-1), identity.gid) != 0 ||
      ::fchmod(directory.get(), 0710) != 0)
    return os_error("cannot close the sandbox's directory to others", directory ? errno : -directory.get());
  return {};
}

}  // namespace

Result<std::unique_ptr<Workspace>> Workspace::open(Options options, bool attach_only) {
  if (!is_sandbox_id(options.sandbox_id)) return invalid("the sandbox id is malformed");
  auto sandboxes = open_state_directory(options.sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  make_room(sandboxes->get());
  auto sandbox = sandbox_directory(sandboxes->get(), options.sandbox_id, attach_only);
  if (!sandbox) return sandbox.error();
  if (auto closed = close_to_others(sandboxes->get(), options.sandbox_id, options.identity); !closed)
    return closed.error();
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
  if (auto ready = open_root(sandbox->get(), options.identity, attach_only, *state); !ready)
    return ready.error();
  if (auto ready = prepare_staging(sandbox->get(), *state); !ready) return ready.error();
  return std::unique_ptr<Workspace>(std::make_unique<WorkspaceImpl>(std::move(state), options.identity));
}

std::unique_ptr<Workspace> Workspace::at(Fd root, const std::vector<SharedDir>* shared_dirs) {
  auto state = std::make_shared<WorkspaceState>();
  state->root = std::move(root);
  state->shared_dirs = shared_dirs;
  state->attached = true;
  state->completion_follows = true;
  return std::make_unique<WorkspaceImpl>(std::move(state), Identity());
}

Result<Fd> Workspace::beside(const std::string& sandboxes_dir, const std::string& sandbox_id,
                             const char* name, const Identity& owner, uint32_t mode) {
  if (!is_sandbox_id(sandbox_id)) return invalid("the sandbox id is malformed");
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  auto sandbox = open_sandbox_directory(sandboxes->get(), sandbox_id);
  if (!sandbox) return sandbox.error();
  return own_directory(sandbox->get(), name, owner, mode);
}

Result<void> Workspace::purge(const std::string& sandboxes_dir, const std::string& sandbox_id,
                              int cancel_fd) {
  if (!is_sandbox_id(sandbox_id)) return invalid("the sandbox id is malformed");
  auto sandboxes = open_state_directory(sandboxes_dir);
  if (!sandboxes) return sandboxes.error();
  make_room(sandboxes->get());
  return throw_away(sandboxes->get(), sandbox_id, cancel_fd,
                    std::chrono::steady_clock::now() + kPurgePatience);
}

Result<bool> Workspace::exists(const std::string& sandboxes_dir, const std::string& sandbox_id) {
  if (!is_sandbox_id(sandbox_id)) return invalid("the sandbox id is malformed");
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
  DirReader reader;
  while (!reader.end()) {
    std::vector<DirReader::Name> names;
    if (const int code = reader.next(sandboxes->get(), names); code < 0)
      return os_error("cannot list the sandboxes", -code);
    for (const auto& name : names) {
      if (!is_sandbox_id(name.text)) continue;
      const auto sandbox = open_sandbox_directory(sandboxes->get(), name.text);
      if (!sandbox) continue;
      const auto owner = read_state_file(sandbox->get(), kBackendFile);
      if (owner && *owner == backend) found.push_back(name.text);
    }
  }
  return found;
}

bool is_sandbox_id(std::string_view text) {
  constexpr std::string_view kPrefix = "isg-";
  return text.size() == kPrefix.size() + 26 && text.substr(0, kPrefix.size()) == kPrefix &&
         std::all_of(text.begin() + kPrefix.size(), text.end(),
                     [](char c) { return (c >= 'a' && c <= 'z') || (c >= '2' && c <= '7'); });
}

}  // namespace isogate
