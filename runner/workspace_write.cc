#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "runner/workspace_impl.h"
#include "runner/workspace_transfer.h"

namespace isogate {
namespace {

constexpr uint32_t kNewFileMode = 0644;
constexpr std::chrono::milliseconds kPatience{50};  // between two looks at cancel_fd
constexpr int kMaxPatience = 600;                   // 30 s in all

Result<void> prefixed(const std::string& attempt, Error error) {
  error.message = attempt + ": " + error.message;
  return error;
}

bool has(const isogate_file_request& request, uint32_t flag) { return (request.flags & flag) != 0; }

Fd open_to_sync(int path_fd) { return Fd(::openat(path_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)); }

// One that its owner may search but not read is opened by this process's own right: the directory itself,
// whatever became of its name. Who has no more right than the tenant syncs the whole file system.
int sync_directory(int path_fd, const Identity& tenant, int file) {
  Fd dir = open_to_sync(path_fd);
  if (!dir && tenant.change) {
    const FsIdentity as_host({true, ::geteuid(), ::getegid()});
    dir = open_to_sync(path_fd);
  }
  if (!dir && tenant.change) return -errno;
  return (dir ? ::fsync(dir.get()) : ::syncfs(file)) == 0 ? 0 : -errno;
}

}  // namespace

Result<std::optional<struct stat>> replaceable(int parent, const std::string& leaf,
                                               const std::string& attempt) {
  struct stat info {};
  if (::fstatat(parent, leaf.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return std::optional<struct stat>();
    return os_error(attempt, errno);
  }
  if (S_ISDIR(info.st_mode)) return Error{ISOGATE_IS_DIRECTORY, EISDIR, attempt + ": it is a directory"};
  if (S_ISLNK(info.st_mode))
    return Error{ISOGATE_PERMISSION_DENIED, ELOOP,
                 attempt + ": it is a symlink, which is never written through"};
  if (!S_ISREG(info.st_mode))
    return Error{ISOGATE_NOT_REGULAR, 0, attempt + ": it is not a regular file but a FIFO, socket or device"};
  return std::optional<struct stat>(info);
}

// Looks whether the write can succeed, before any byte of the body is taken, and makes the staged file.
Result<StagedFile> WorkspaceImpl::stage(const Target& target, bool parents, Fd& beside) const {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  const size_t depth = target.path.parts.size() - 1;
  beside = Fd(resolve(target.tree, target.path.joined(depth), O_PATH | O_DIRECTORY));
  if (beside) {
    auto present = replaceable(beside.get(), target.path.parts.back(), target.attempt);
    if (!present) return present.error();
  } else if (beside.get() == -ENOENT && parents) {
    existing_depth(target, beside);
  }
  if (!beside) return target.error(beside.get());
  const bool apart = target.tree.confined && state_->staging && identity_.change == state_->owner.change &&
                     identity_.uid == state_->owner.uid;
  auto staged = StagedFile::create(apart ? state_->staging.get() : beside.get(), identity_, !apart);
  if (!staged) staged.error().message = target.attempt + ": " + staged.error().message;
  return staged;
}

// With scope sandbox it may be another disk; what counts is what the sandboxes share.
Room WorkspaceImpl::room() const {
  if (state_->sandboxes_dir.empty()) return {};
  return [this] { return room_for_upload(state_->sandboxes_dir); };
}

Result<void> WorkspaceImpl::receive(StagedFile& staged, const Target& target, int in, int cancel_fd,
                                    int complete_fd, uint64_t& bytes) const {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  auto got = pump_in(in, staged.fd(), cancel_fd, room());
  if (got && complete_fd > 0 && state_->completion_follows) {
    if (auto told = wait_readable(complete_fd, cancel_fd); !told) got = told.error();
  }
  if (got && complete_fd > 0 && !cancelled(complete_fd))
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
  const int code =
      staged.commit(parent.fd.get(), target.path.parts.back(), has(request, ISOGATE_FILE_EXCLUSIVE));
  if (code < 0) return target.error(code);
  if (!durable) return {};
  if (const int synced = sync_directory(parent.fd.get(), identity_, staged.fd()); synced < 0)
    return target.error(synced);
  for (const Fd& dir : parent.made_in)
    if (const int synced = sync_directory(dir.get(), identity_, staged.fd()); synced < 0)
      return target.error(synced);
  return {};
}

Result<std::unique_lock<std::timed_mutex>> WorkspaceImpl::commit_alone(int cancel_fd) const {
  std::unique_lock<std::timed_mutex> lock(state_->commit, std::defer_lock);
  for (int tries = 0; !lock.try_lock_for(kPatience); ++tries) {
    if (cancelled(cancel_fd)) return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    if (tries >= kMaxPatience) return busy_error("another write to this sandbox takes too long");
  }
  return lock;
}

Result<void> WorkspaceImpl::commit(StagedFile& body, uint64_t bytes, const Target& target,
                                   const isogate_file_request& request, int cancel_fd) {
  const FsIdentity as_tenant(identity_);
  if (as_tenant.error()) return *as_tenant.error();
  const auto one = commit_alone(cancel_fd);
  if (!one) return prefixed(target.attempt, one.error());
  auto parent = parent_of(target, has(request, ISOGATE_FILE_PARENTS));
  if (!parent) return parent.error();
  const std::string& leaf = target.path.parts.back();
  auto present = replaceable(parent->fd.get(), leaf, target.attempt);
  if (!present) return present.error();
  if (present->has_value() && has(request, ISOGATE_FILE_EXCLUSIVE)) return target.error(-EEXIST);
  uint32_t mode = present->has_value() ? (*present)->st_mode & 0777 : kNewFileMode;
  if (has(request, ISOGATE_FILE_MODE_GIVEN)) mode = request.mode;
  if (!present->has_value() || !has(request, ISOGATE_FILE_APPEND))
    return place(body, *parent, target, request, mode);
  return append(body, bytes, *parent, target, request, mode, cancel_fd);
}

Result<void> WorkspaceImpl::append(StagedFile& body, uint64_t bytes, const Parent& parent,
                                   const Target& target, const isogate_file_request& request, uint32_t mode,
                                   int cancel_fd) {
  Target leaf = target;
  leaf.tree.fd = parent.fd.get();
  leaf.tree.confined = true;
  leaf.path.parts = {target.path.parts.back()};
  auto old = open_regular(leaf);
  if (!old) return old.error();
  struct stat info {};
  if (::fstat(old->get(), &info) != 0) return target.error(-errno);
  auto whole = body.sibling();
  if (!whole) return prefixed(target.attempt, whole.error());
  auto copied = copy_file(old->get(), static_cast<uint64_t>(info.st_size), whole->fd(), cancel_fd, room());
  if (copied) copied = copy_file(body.fd(), bytes, whole->fd(), cancel_fd, room());
  if (!copied) return prefixed(target.attempt, copied.error());
  return place(*whole, parent, target, request, mode);
}

Result<uint64_t> WorkspaceImpl::write(const isogate_file_request& request, int cancel_fd) {
  auto target = find_to_change(request, request.path, "write", true);
  if (!target) return target.error();
  if (target->path.directory_only) return invalid(target->attempt + ": the path names a directory");
  Fd beside;
  auto staged = stage(*target, has(request, ISOGATE_FILE_PARENTS), beside);
  if (!staged) return staged.error();
  uint64_t bytes = 0;
  if (auto received = receive(*staged, *target, request.fd, cancel_fd, request.complete_fd, bytes); !received)
    return received.error();
  if (auto done = commit(*staged, bytes, *target, request, cancel_fd); !done) return done.error();
  return bytes;
}

}  // namespace isogate
