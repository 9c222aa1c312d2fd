// Threads in a process that handles signals itself.
#pragma once

#include <condition_variable>
#include <csignal>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "lib/error.h"

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

// The same, and an error in place of the exception.
template <typename Work>
Result<void> start_thread(std::thread& into, const char* attempt, Work&& work) try {
  into = start_thread(std::forward<Work>(work));
  return {};
} catch (const std::system_error& error) {
  return os_error(attempt, error.code().value());
}

// Ends a thread, if one was started, that waits for `changed` until `ending`.
inline void end_thread(std::thread& thread, std::mutex& mutex, bool& ending,
                       std::condition_variable& changed) {
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  changed.notify_one();
  if (thread.joinable()) thread.join();
}

}  // namespace isogate
