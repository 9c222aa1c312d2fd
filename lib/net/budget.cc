#include "lib/net/budget.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>

#include "lib/clock.h"
#include "lib/net/net_error.h"

namespace isogate::net {
namespace {

using std::chrono::milliseconds;

// For poll(2), rounded up, so that no caller spins through the last millisecond.
int poll_time(Budget::Clock::duration left) {
  const auto whole = std::chrono::ceil<milliseconds>(left).count();
  return static_cast<int>(std::clamp<int64_t>(whole, 0, std::numeric_limits<int>::max()));
}

}  // namespace

Budget::Budget(const sdk::Call& call, milliseconds most) : Budget(most, call.cancel_fd()) {
  // cancel_fd also reports the deadline; the call is then cancelled, not late.
  if (call.cancel_fd() >= 0 || call.deadline_ns() == INT64_MAX) return;
  end_ = std::min(end_, Clock::time_point(std::chrono::nanoseconds(call.deadline_ns())));
}

Budget::Budget(milliseconds most, int cancel_fd)
    : cancel_fd_(cancel_fd), end_(Clock::now() + most), whole_(most) {}

Budget Budget::of_each_wait(milliseconds most, int cancel_fd) {
  Budget budget = endless(cancel_fd);
  budget.each_wait_ = true;
  budget.whole_ = most;
  return budget;
}

Budget Budget::endless(int cancel_fd) {
  Budget budget;
  budget.cancel_fd_ = cancel_fd;
  budget.endless_ = true;
  return budget;
}

Budget::Outcome Budget::wait(int fd, short events, milliseconds slice) const {
  if (each_wait_) slice = std::min(slice, whole_);
  const bool sliced = slice != milliseconds::max();
  const Clock::time_point slice_end = sliced ? Clock::now() + slice : Clock::time_point::max();
  for (;;) {
    const Clock::time_point end = endless_ ? slice_end : std::min(end_, slice_end);
    const int time = endless_ && !sliced ? -1 : poll_time(end - Clock::now());
    pollfd watch[2] = {{cancel_fd_, POLLIN, 0}, {fd, events, 0}};
    const int ready = ::poll(watch, 2, time);
    if (ready < 0 && errno != EINTR) sdk::fail_with_errno("cannot wait for a server", errno);
    if (ready < 0) continue;
    if (watch[0].revents != 0) return Outcome::kCancelled;
    if (watch[1].revents != 0) return Outcome::kReady;
    if (time >= 0 && Clock::now() >= end) return Outcome::kLate;
  }
}

std::string Budget::lateness(short events) const {
  if (!each_wait_) return "did not answer within " + seconds_text(whole_);
  return ((events & POLLIN) != 0 ? "sent nothing for " : "read nothing for ") + seconds_text(whole_);
}

void Budget::await(int fd, short events, const std::string& late, milliseconds slice) const {
  const Outcome outcome = wait(fd, events, slice);
  if (outcome == Outcome::kCancelled) throw NetError(ISOGATE_CANCELLED, "cancelled");
  if (outcome == Outcome::kLate) throw NetError(ISOGATE_UNAVAILABLE, late);
}

}  // namespace isogate::net
