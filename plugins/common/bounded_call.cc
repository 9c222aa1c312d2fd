#include "plugins/common/bounded_call.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>

namespace isogate {
namespace {

using std::chrono::milliseconds;

Fd timer_of(milliseconds most) {
  Fd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  const auto count = std::max<int64_t>(1, most.count());  // 0 would disarm it
  itimerspec when{};
  when.it_value = {count / 1000, count % 1000 * 1'000'000};
  if (!timer || ::timerfd_settime(timer.get(), 0, &when, nullptr) != 0)
    sdk::fail_with_errno("cannot set a timer", errno);
  return timer;
}

Fd either_of(int one, int other) {
  Fd both(::epoll_create1(EPOLL_CLOEXEC));
  for (const int fd : {one, other}) {
    epoll_event event{};
    event.events = EPOLLIN;
    if (fd >= 0 && (!both || ::epoll_ctl(both.get(), EPOLL_CTL_ADD, fd, &event) != 0))
      sdk::fail_with_errno("cannot watch a timer", errno);
  }
  return both;
}

}  // namespace

BoundedCall::BoundedCall(const sdk::Call* whole, milliseconds most, const isogate_call& abi)
    : whole_(whole),
      timer_(timer_of(most)),
      either_(either_of(timer_.get(), abi.cancel_fd)),
      abi_{sizeof abi_, either_.get(), abi.deadline_ns, abi.request_id},
      call_(abi_) {}

BoundedCall::BoundedCall(milliseconds most, int cancel_fd)
    : BoundedCall(nullptr, most, {sizeof(isogate_call), cancel_fd, INT64_MAX, {}}) {}

BoundedCall::BoundedCall(const sdk::Call& whole, milliseconds most)
    : BoundedCall(&whole, most,
                  {sizeof(isogate_call), whole.cancel_fd(), whole.deadline_ns(), whole.abi().request_id}) {}

}  // namespace isogate
