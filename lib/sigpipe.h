// A write to a pipe that nobody reads, in a process that did not choose what SIGPIPE does.
#pragma once

#include <csignal>

namespace isogate {

// While it lives, such a write of this thread fails with EPIPE and the process gets no signal. One thread's.
class SigpipeGuard {
 public:
  SigpipeGuard();
  ~SigpipeGuard();
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t old_{};
  bool was_pending_;
};

}  // namespace isogate
