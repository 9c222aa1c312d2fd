#include "plugins/common/bounded_call.h"

#include <sys/epoll.h>

#include <cerrno>

#include "plugins/common/or_throw.h"

namespace isogate {
namespace {

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

BoundedCall::BoundedCall(const sdk::Call* whole, std::chrono::milliseconds most, const isogate_call& abi)
    : whole_(whole),
      timer_(or_throw(make_timer(most))),
      either_(either_of(timer_.get(), abi.cancel_fd)),
      abi_{sizeof abi_, either_.get(), abi.deadline_ns, abi.request_id},
      call_(abi_) {}

BoundedCall::BoundedCall(std::chrono::milliseconds most, int cancel_fd)
    : BoundedCall(nullptr, most, {sizeof(isogate_call), cancel_fd, INT64_MAX, {}}) {}

BoundedCall::BoundedCall(const sdk::Call& whole, std::chrono::milliseconds most)
    : BoundedCall(&whole, most,
                  {sizeof(isogate_call), whole.cancel_fd(), whole.deadline_ns(), whole.abi().request_id}) {}

}  // namespace isogate
