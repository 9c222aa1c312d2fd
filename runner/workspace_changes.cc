#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runner/workspace_impl.h"
#include "runner/workspace_tree.h"

namespace isogate {
namespace {

Error already_there(const std::string& attempt, const char* why) {
  return {ISOGATE_ALREADY_EXISTS, EEXIST, attempt + ": " + why};
}

}  // namespace

Result<void> WorkspaceImpl::mkdir(const isogate_file_request& request) {
  auto target = find_to_change(request, request.path, "make directory", false);
  if (!target) return target.error();
  const bool exclusive = (request.flags & ISOGATE_FILE_EXCLUSIVE) != 0;
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  if (target->is_root())
    return exclusive ? Result<void>(already_there(target->attempt, "it is there")) : Result<void>();
  auto parent = parent_of(*target, (request.flags & ISOGATE_FILE_PARENTS) != 0);
  if (!parent) return parent.error();
  const std::string& name = target->path.parts.back();
  const uint32_t mode = request.mode == 0 ? 0755 : request.mode;
  if (::mkdirat(parent->fd.get(), name.c_str(), mode) == 0) {
    const Fd made(resolve_child(parent->fd.get(), name, O_PATH | O_DIRECTORY));  // the umask is not ours
    if (made) chmod_by_fd(made.get(), mode);
    return {};
  }
  if (errno != EEXIST) return target->error(-errno);
  if (exclusive) return already_there(target->attempt, "it is there");
  const Fd present(
      resolve(target->tree, target->path.joined(target->path.parts.size()), O_PATH | O_DIRECTORY));
  if (present) return {};
  if (present.get() == -ENOTDIR || present.get() == -ENOENT)
    return already_there(target->attempt, "something that is no directory is there");
  return target->error(present.get());
}

Result<void> WorkspaceImpl::move(const isogate_file_request& request) {
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
  const auto one = commit_alone(-1);
  if (!one) return one.error();
  if (::renameat2(source->fd.get(), from->path.leaf().c_str(), target->fd.get(), to->path.leaf().c_str(),
                  flags) == 0)
    return {};
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
  if (::unlinkat(parent->fd.get(), leaf.c_str(), 0) == 0) return {};
  if (errno != EISDIR) return target->error(-errno);
  if (::unlinkat(parent->fd.get(), leaf.c_str(), AT_REMOVEDIR) == 0) return {};
  if (errno != ENOTEMPTY || (request.flags & ISOGATE_FILE_RECURSIVE) == 0) return target->error(-errno);
  auto removed = remove_tree(parent->fd.get(), target->path.parts.back(), cancel_fd);
  if (!removed) removed.error().message = target->attempt + ": " + removed.error().message;
  return removed;
}

}  // namespace isogate
