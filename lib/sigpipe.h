// A write to a pipe without a reader, in a process that did not choose the disposition of
// SIGPIPE.
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
