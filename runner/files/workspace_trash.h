// The trash for purged sandboxes: moved there in one step, and removed from there.
//
// On disk: <sandboxes_dir>/.purged/ (this process's user's, 0700) holds each under a random name. It is
// made at the start, because a purge on a full file system could not make it. Any number of processes may
// add to it and empty it at once. It is accessed only by descriptors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "lib/fd.h"

namespace isogate {

// Renames the sandbox's directory into the trash, and then removes it until cancelled or past the deadline. A
// missing one is OK. It cannot fail half-way: after an error the sandbox is unchanged. If a full file system
// has no room for the trash, the sandbox is removed in place, however long that takes; an error may then
// leave part of it.
Result<void> throw_away(int sandboxes, const std::string& sandbox_id, int cancel_fd,
                        std::chrono::steady_clock::time_point deadline);

// Empties the trash until cancelled. True: nothing is left. Errors: what cannot be removed; the rest is
// removed. `sandboxes`: the sandboxes directory, borrowed.
Result<bool> empty_trash(int sandboxes, int cancel_fd);

// Empties the trash in the background: at the start, for what earlier processes left, and whenever it is
// woken. One thread of low priority, which sleeps while there is nothing to do; it retries failed removals
// each minute. Any thread may wake it.
class TrashSweeper {
 public:
  using Notice = std::function<void(const std::string&)>;  // one line, on the sweeper's thread

  TrashSweeper(std::string sandboxes_dir, Notice notice);
  ~TrashSweeper();  // in the middle of a tree, if need be
  TrashSweeper(const TrashSweeper&) = delete;
  TrashSweeper& operator=(const TrashSweeper&) = delete;

  void wake();

 private:
  void work();
  bool sweep();

  const std::string sandboxes_dir_;
  const Notice notice_;
  Fd stop_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool wanted_ = true, ending_ = false;
  bool told_ = false;  // the sweeper's thread only
  std::thread thread_;
};

}  // namespace isogate
