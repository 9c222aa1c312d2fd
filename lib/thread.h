// Threads in a process that handles signals itself.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace isogate {

// A thread that receives no signals: the main thread receives them. Except SIGSYS, by which a thread reports
// its own forbidden system call. Throws std::system_error if no further thread can be made.
template <typename Work>
std::thread start_thread(Work&& work) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::sigdelset(&all, SIGSYS);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;
  return std::thread(std::forward<Work>(work));
}

}  // namespace isogate
