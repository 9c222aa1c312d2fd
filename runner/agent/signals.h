// The signals of this process, as descriptors to poll.
//
// As pid 1 it ends only by signals from outside its pid namespace, never by programs inside. The kernel
// reports the sender of a signal, and a sender from outside has no pid there.
#pragma once

#include <atomic>

#include "lib/fd.h"

namespace isogate::agent {

class Signals {
 public:
  // Blocks them in this thread, and so in all it starts; the process ignores SIGPIPE from then on.
  Result<void> open();

  [[nodiscard]] int end_fd() const { return end_.get(); }      // SIGTERM, SIGINT: then should_end()
  [[nodiscard]] int child_fd() const { return child_.get(); }  // SIGCHLD: then forget_children()
  // Takes what is pending on end_fd(); true once this process is to end. Any thread.
  bool should_end();
  void forget_children() const;

 private:
  Fd end_, child_;
  std::atomic<bool> ending_{false};
};

}  // namespace isogate::agent
