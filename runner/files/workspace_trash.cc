#include "runner/files/workspace_trash.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "lib/thread.h"
#include "runner/files/workspace_resolve.h"
#include "runner/files/workspace_stage.h"
#include "runner/files/workspace_state.h"
#include "runner/files/workspace_tree.h"

namespace isogate {
namespace {

constexpr const char* kTrash = ".purged";
constexpr int kTries = 100;  // of another purge of the same sandbox
constexpr std::chrono::seconds kAgain{60};
constexpr int kNice = 10;

Result<Fd> open_trash(int sandboxes) {
  return checked_directory(resolve_child(sandboxes, kTrash, O_RDONLY | O_DIRECTORY),
                           "the directory of purged sandboxes", true);
}

Result<Fd> make_trash(int sandboxes) {
  if (::mkdirat(sandboxes, kTrash, 0700) != 0 && errno != EEXIST)
    return os_error("cannot make the directory of purged sandboxes", errno);
  return open_trash(sandboxes);
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

}  // namespace

Result<void> throw_away(int sandboxes, const std::string& sandbox_id, int cancel_fd,
                        std::chrono::steady_clock::time_point deadline) {
  for (int tries = 0; tries < kTries; ++tries) {
    const auto sandbox = open_sandbox_directory(sandboxes, sandbox_id);
    if (!sandbox && sandbox.error().os_errno == ENOENT) return {};
    if (!sandbox) return sandbox.error();
    const auto trash = make_trash(sandboxes);
    if (!trash && trash.error().os_errno == ENOENT) continue;
    if (!trash && is_full(trash.error().os_errno)) return remove_tree(sandboxes, sandbox_id, cancel_fd);
    if (!trash) return trash.error();
    const auto name = random_name();
    if (!name) return name.error();
    if (::renameat2(sandboxes, sandbox_id.c_str(), trash->get(), name->c_str(), RENAME_NOREPLACE) == 0) {
      (void)remove_tree(trash->get(), *name, cancel_fd, deadline).ok();
      return {};
    }
    if (is_full(errno)) return remove_tree(sandboxes, sandbox_id, cancel_fd);
    if (errno != ENOENT && errno != EEXIST) return os_error("cannot put the purged sandbox aside", errno);
  }
  return os_error("cannot put the purged sandbox aside", EBUSY);
}

Result<bool> empty_trash(int sandboxes, int cancel_fd) {
  const auto trash = open_trash(sandboxes);
  if (!trash && trash.error().os_errno == ENOENT) return true;
  if (!trash) return trash.error();
  std::vector<std::string> names;
  const int code = each_name(trash->get(), [&](auto& name) { names.push_back(std::move(name.text)); });
  if (code < 0) return os_error("cannot list the purged sandboxes", -code);
  Result<bool> all = true;
  for (const std::string& name : names) {
    auto removed = remove_tree(trash->get(), name, cancel_fd);
    if (removed) continue;
    if (removed.error().status == ISOGATE_CANCELLED) return false;
    all = removed.error();
  }
  return all;
}

TrashSweeper::TrashSweeper(std::string sandboxes_dir, Notice notice)
    : sandboxes_dir_(std::move(sandboxes_dir)), notice_(std::move(notice)) {
  if (const auto sandboxes = open_state_directory(sandboxes_dir_); sandboxes)
    (void)make_trash(sandboxes->get()).ok();  // each purge tries again
  auto stop = make_event();
  if (!stop) return;
  stop_ = std::move(*stop);
  // Without a thread each purge empties the trash for a while.
  (void)start_thread(thread_, "cannot start a thread", [this] { work(); }).ok();
}

TrashSweeper::~TrashSweeper() {
  signal_event(stop_.get());
  end_thread(thread_, mutex_, ending_, woken_);
}

void TrashSweeper::wake() {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  woken_.notify_one();
}

// False: something is left.
bool TrashSweeper::sweep() {
  const auto sandboxes = open_state_directory(sandboxes_dir_);
  if (!sandboxes) return true;  // there is nothing to sweep, or the next purge reports it
  const auto done = empty_trash(sandboxes->get(), stop_.get());
  if (!done && !std::exchange(told_, true))
    notice_("a purged sandbox cannot be removed, and is tried again: " + done.error().message);
  if (done) told_ = false;
  return done && *done;
}

void TrashSweeper::work() {
  ::setpriority(PRIO_PROCESS, 0, kNice);  // of this thread alone
  bool clean = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto due = [this] { return wanted_ || ending_; };
    if (clean) {
      woken_.wait(lock, due);
    } else {
      woken_.wait_for(lock, kAgain, due);
    }
    if (ending_) return;
    wanted_ = false;
    lock.unlock();
    clean = sweep();
    lock.lock();
  }
}

}  // namespace isogate
