#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_stage.h"
#include "runner/files/workspace_transfer.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr size_t kMaxFrames = 8;  // deeper directories are moved up to the top and removed from there
constexpr int kMaxPasses = 1000;  // over one directory that a program keeps filling

using Clock = std::chrono::steady_clock;

class Remover {
 public:
  Remover(int cancel_fd, Clock::time_point deadline) : cancel_fd_(cancel_fd), deadline_(deadline) {}
  Result<void> run(int top);

 private:
  struct Frame {
    Fd fd;
    std::string name;  // in its parent
    DirReader reader;
    std::vector<std::string> dirs;  // seen in this pass, still to be removed
    bool saw_any = false, progress = false;
    int passes = 0;
  };

  int read_batch(Frame& frame);
  void remove_directory(const std::string& name);
  void enter_or_hoist(const std::string& name);
  int hoist(Frame& frame, const std::string& name);
  void finish_pass();
  void leave_empty_frame();
  void note(int code);

  std::vector<Frame> frames_;
  int cancel_fd_;
  Clock::time_point deadline_;
  int first_error_ = 0;
  bool left_something_ = false;
};

bool denied(int code) { return code == -EACCES || code == -EPERM; }

bool make_usable(int dir) {
  struct stat info {};
  return ::fstat(dir, &info) == 0 && (info.st_mode & 0700) != 0700 && ::fchmod(dir, 0700) == 0;
}

// The operation, repeated if the directory could be opened up to its owner.
template <typename Operation>
int with_access(int dir, Operation operation) {
  const int code = operation();
  return denied(code) && make_usable(dir) ? operation() : code;
}

int unlink_in(int dir, const std::string& name, int flags) {
  return with_access(dir, [&] { return ::unlinkat(dir, name.c_str(), flags) == 0 ? 0 : -errno; });
}

// A directory that is closed to its owner is opened up.
int open_directory(int dir, const std::string& name) {
  const int fd = resolve_child(dir, name, O_RDONLY | O_DIRECTORY);
  if (fd != -EACCES) return fd;
  const Fd closed(resolve_child(dir, name, O_PATH | O_DIRECTORY));
  if (!closed) return closed.get();
  const int code = chmod_by_fd(closed.get(), 0700);
  return code < 0 ? code : reopen(closed.get(), O_RDONLY | O_DIRECTORY);
}

// Another entry was put there: the next pass sees which.
bool swapped(int code) { return code == -ENOENT || code == -ENOTDIR || code == -ELOOP || code == -EISDIR; }

void Remover::note(int code) {
  if (first_error_ == 0) first_error_ = -code;
}

int Remover::read_batch(Frame& frame) {
  std::vector<DirReader::Name> names;
  if (const int code = frame.reader.next(frame.fd.get(), names); code < 0) return code;
  for (auto& name : names) {
    frame.saw_any = true;
    const int code = name.type == DT_DIR ? -EISDIR : unlink_in(frame.fd.get(), name.text, 0);
    if (code == 0 || code == -ENOENT)
      frame.progress = true;
    else if (code == -EISDIR)
      frame.dirs.push_back(std::move(name.text));
    else
      note(code);
  }
  return 0;
}

void Remover::remove_directory(const std::string& name) {
  Frame& frame = frames_.back();
  const int code = unlink_in(frame.fd.get(), name, AT_REMOVEDIR);
  if (code == 0 || swapped(code))
    frame.progress = true;
  else if (code == -ENOTEMPTY || code == -EEXIST)
    enter_or_hoist(name);
  else
    note(code);
}

void Remover::enter_or_hoist(const std::string& name) {
  Frame& frame = frames_.back();
  if (frames_.size() >= kMaxFrames) {
    if (const int code = hoist(frame, name); code < 0) note(code);
    return;
  }
  Fd fd(with_access(frame.fd.get(), [&] { return open_directory(frame.fd.get(), name); }));
  if (!fd) {
    if (swapped(fd.get()))
      frame.progress = true;
    else
      note(fd.get());
    return;
  }
  Frame child;
  child.fd = std::move(fd);
  child.name = name;
  frames_.push_back(std::move(child));
}

int Remover::hoist(Frame& frame, const std::string& name) {
  const Fd dir(
      with_access(frame.fd.get(), [&] { return resolve_child(frame.fd.get(), name, O_PATH | O_DIRECTORY); }));
  if (dir) chmod_by_fd(dir.get(), 0700);  // a directory that changes its parent must be writable
  const auto random = random_name();
  if (!random) return -EIO;
  const std::string unique = ".isogate-" + *random;
  const int code = with_access(frame.fd.get(), [&] {
    return ::renameat2(frame.fd.get(), name.c_str(), frames_[0].fd.get(), unique.c_str(), RENAME_NOREPLACE) ==
                   0
               ? 0
               : -errno;
  });
  if (code == 0) frames_[0].dirs.push_back(unique);
  if (code == 0 || code == -ENOENT) frame.progress = true;
  return code == -ENOENT ? 0 : code;
}

void Remover::leave_empty_frame() {
  const std::string name = std::move(frames_.back().name);
  frames_.pop_back();
  if (frames_.empty()) return;
  Frame& parent = frames_.back();
  const int code = unlink_in(parent.fd.get(), name, AT_REMOVEDIR);
  if (denied(code) || code == -EBUSY)
    note(code);
  else
    parent.progress = true;  // removed, or the next pass finds the new entry
}

void Remover::finish_pass() {
  Frame& frame = frames_.back();
  if (!frame.saw_any) return leave_empty_frame();
  if (frame.progress && ++frame.passes < kMaxPasses && ::lseek(frame.fd.get(), 0, SEEK_SET) == 0) {
    frame.reader = DirReader();
    frame.saw_any = frame.progress = false;
    return;
  }
  note(-ENOTEMPTY);
  left_something_ = frames_.size() == 1;
  frames_.pop_back();
}

Result<void> Remover::run(int top) {
  Frame root;
  root.fd = Fd(::fcntl(top, F_DUPFD_CLOEXEC, 0));
  if (!root.fd || ::lseek(root.fd.get(), 0, SEEK_SET) < 0) return os_error("cannot remove the tree", errno);
  frames_.push_back(std::move(root));
  while (!frames_.empty()) {
    if (is_signalled(cancel_fd_) || (deadline_ != Clock::time_point::max() && Clock::now() >= deadline_))
      return Error{ISOGATE_CANCELLED, ECANCELED, "cancelled"};
    Frame& frame = frames_.back();
    if (!frame.dirs.empty()) {
      const std::string name = std::move(frame.dirs.back());
      frame.dirs.pop_back();
      remove_directory(name);
    } else if (frame.reader.end()) {
      finish_pass();
    } else if (const int code = read_batch(frame); code < 0) {
      return os_error("cannot read a directory", -code);
    }
  }
  if (left_something_) return os_error("something in it cannot be removed", first_error_);
  return {};
}

}  // namespace

Result<void> remove_tree(int parent, const std::string& name, int cancel_fd, Clock::time_point deadline) {
  for (int tries = 0; tries < kMaxPasses; ++tries) {
    if (::unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return {};
    if (errno != EISDIR) return os_error("cannot remove it", errno);
    const Fd top(open_directory(parent, name));
    if (!top && swapped(top.get())) continue;
    if (!top) return os_error("cannot enter it", -top.get());
    if (auto emptied = Remover(cancel_fd, deadline).run(top.get()); !emptied) return emptied;
    if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
    if (errno != ENOTEMPTY && !swapped(-errno)) return os_error("cannot remove it", errno);
  }
  return os_error("it is being filled faster than it can be removed", EBUSY);
}

}  // namespace isogate
