#include "outlet.h"

#include <poll.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <ctime>

namespace isogate::sdk::link {
namespace {

sigset_t pipe_signal() {
  sigset_t set{};
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending{};
  return ::sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

NoSigpipe::NoSigpipe() : was_pending_(is_pending()) {
  const sigset_t set = pipe_signal();
  ::pthread_sigmask(SIG_BLOCK, &set, &old_);
}

NoSigpipe::~NoSigpipe() {
  const sigset_t set = pipe_signal();
  const timespec now{};
  if (!was_pending_ && is_pending()) {
    while (::sigtimedwait(&set, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  ::pthread_sigmask(SIG_SETMASK, &old_, nullptr);
}

void Outlet::take(std::string& bytes) {
  bytes_.clear();
  at_ = 0;
  bytes_.swap(bytes);
  if (broken_) advance(bytes_.size());
}

void Outlet::push() {
  if (empty()) return;
  const NoSigpipe quiet;
  while (!empty() && push_piece()) {
  }
}

void Outlet::close() {
  broken_ = true;
  advance(bytes_.size() - at_);
}

bool Outlet::push_piece() {
  pollfd one{fd_, POLLOUT, 0};
  if (::poll(&one, 1, 0) <= 0) return false;
  if ((one.revents & POLLOUT) == 0) {
    close();
    return false;
  }
  const ssize_t done = write_now();
  if (done < 0 && errno != EAGAIN && errno != EINTR) close();
  if (done > 0) advance(static_cast<size_t>(done));
  return done > 0;
}

// A pipe that polls writable takes PIPE_BUF bytes without blocking. All that it has room for it takes only
// where the kernel knows RWF_NOWAIT for pipes (since 6.4).
ssize_t Outlet::write_now() {
  iovec part{bytes_.data() + at_, bytes_.size() - at_};
  if (all_at_once_ && part.iov_len > PIPE_BUF) {
    const ssize_t done = ::pwritev2(fd_, &part, 1, -1, RWF_NOWAIT);
    if (done > 0 || (done < 0 && errno == EPIPE)) return done;
    all_at_once_ = false;
  }
  return ::write(fd_, part.iov_base, std::min<size_t>(part.iov_len, PIPE_BUF));
}

void Outlet::advance(size_t size) {
  at_ += size;
  passed_ += size;
}

}  // namespace isogate::sdk::link
