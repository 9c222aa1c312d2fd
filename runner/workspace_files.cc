#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "runner/workspace_impl.h"
#include "runner/workspace_kernel.h"
#include "runner/workspace_transfer.h"
#include "runner/workspace_tree.h"

namespace isogate {
namespace {

constexpr uint32_t kKnownFlags = ISOGATE_FILE_APPEND | ISOGATE_FILE_DURABLE | ISOGATE_FILE_EXCLUSIVE |
                                 ISOGATE_FILE_PARENTS | ISOGATE_FILE_RECURSIVE | ISOGATE_FILE_MODE_GIVEN;

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

}  // namespace

Error WorkspaceImpl::Target::denied(const std::string& why) const {
  return {ISOGATE_PERMISSION_DENIED, 0, attempt + ": " + why};
}

Result<WorkspaceImpl::Target> WorkspaceImpl::find(const isogate_file_request& request,
                                                  const isogate_str& path, const char* verb) const {
  if ((request.flags & ~kKnownFlags) != 0) return invalid("the request has unknown flags");
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

Result<WorkspaceImpl::Parent> WorkspaceImpl::make_parents(const Target& target, size_t depth) {
  Parent parent;
  const size_t present = existing_depth(target, parent.fd);
  if (!parent.fd) return target.error(parent.fd.get());
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

Result<WorkspaceImpl::Parent> WorkspaceImpl::parent_of(const Target& target, bool make_missing) {
  const size_t depth = target.path.parts.size() - 1;
  Fd fd(resolve(target.tree, target.path.joined(depth), O_PATH | O_DIRECTORY));
  if (fd.get() == -ENOENT && make_missing) return make_parents(target, depth);
  if (!fd) return target.error(fd.get());
  return Parent{std::move(fd), {}};
}

// The type is looked at on an O_PATH descriptor, so that a FIFO or a device is never opened.
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
  if (is_kernel_file(file->get(), info))
    return read_kernel_file(*target, file->get(), info, request, cancel_fd);
  const uint64_t begin = std::min(request.offset, entry.size);
  const uint64_t count = std::min(request.limit, entry.size - begin);
  auto sent = pump_out(file->get(), begin, count, request.fd, cancel_fd);
  if (!sent) return prefixed(target->attempt, sent.error());
  if (*sent < count && ::fstat(file->get(), &info) == 0) entry = entry_of(info);
  return entry;
}

Result<isogate_entry> WorkspaceImpl::read_kernel_file(const Target& target, int file, const struct stat& info,
                                                      const isogate_file_request& request,
                                                      int cancel_fd) const {
  if (auto allowed = check_kernel_file(file, info, identity_); !allowed)
    return prefixed(target.attempt, allowed.error());
  const auto done = pump_kernel_file(file, request.offset, request.limit, request.fd, cancel_fd);
  if (!done) return prefixed(target.attempt, done.error());
  isogate_entry entry = entry_of(info);
  entry.size = done->at_end ? done->passed : ISOGATE_SIZE_UNKNOWN;
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

}  // namespace isogate
