#include "lib/sigpipe.h"

#include <cerrno>
#include <ctime>

namespace isogate {
namespace {

sigset_t pipe_signal() {
  sigset_t set{};
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool pipe_signal_is_pending() {
  sigset_t pending{};
  return ::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

SigpipeGuard::SigpipeGuard() : was_pending_(pipe_signal_is_pending()) {
  const sigset_t set = pipe_signal();
  ::pthread_sigmask(SIG_BLOCK, &set, &old_);
}

SigpipeGuard::~SigpipeGuard() {
  const sigset_t set = pipe_signal();
  const timespec now{};
  if (!was_pending_ && pipe_signal_is_pending()) {
    while (::sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

}  // namespace isogate
