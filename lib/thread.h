// Threads beside a host that handles signals.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

namespace isogate {

// A thread to which no signal is delivered: signals are the main thread's. Throws std::system_error where
// there can be no further thread.
template <typename Work>
std::thread start_thread(Work&& work) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      ::sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { ::pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  };
  const Blocked blocked;
  return std::thread(std::forward<Work>(work));
}

}  // namespace isogate
