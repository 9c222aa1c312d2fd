#include "runner/agent/poller.h"

#include <sys/epoll.h>

#include <array>
#include <cerrno>

namespace isogate::agent {
namespace {

constexpr uint64_t kNudge = UINT64_MAX;

int control(int epoll, int operation, int fd, uint32_t events, uint64_t key) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = key;
  return ::epoll_ctl(epoll, operation, fd, &event);
}

}  // namespace

Result<void> Poller::open() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) return os_error("cannot make an epoll set", errno);
  auto nudge = make_event();
  if (!nudge) return nudge.error();
  nudge_ = std::move(*nudge);
  return watch(nudge_.get(), kNudge);
}

Result<void> Poller::watch(int fd, uint64_t key) {
  if (control(epoll_.get(), EPOLL_CTL_ADD, fd, EPOLLIN, key) != 0)
    return os_error("cannot watch a descriptor", errno);
  return {};
}

bool Poller::arm(int fd, uint64_t key, bool to_write) {
  const uint32_t events = (to_write ? EPOLLOUT : EPOLLIN) | EPOLLONESHOT;
  if (control(epoll_.get(), EPOLL_CTL_MOD, fd, events, key) == 0) return true;
  return errno == ENOENT && control(epoll_.get(), EPOLL_CTL_ADD, fd, events, key) == 0;
}

void Poller::forget(int fd) { control(epoll_.get(), EPOLL_CTL_DEL, fd, 0, 0); }

void Poller::post(uint64_t key) {
  {
    const std::lock_guard lock(mutex_);
    posted_.push_back(key);
  }
  nudge();
}

void Poller::take_posted() {
  clear_event(nudge_.get());
  const std::lock_guard lock(mutex_);
  keys_.insert(keys_.end(), posted_.begin(), posted_.end());
  posted_.clear();
}

const std::vector<uint64_t>& Poller::wait(int patience_ms) {
  std::array<epoll_event, 64> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), patience_ms);
  keys_.clear();
  for (int i = 0; i < count; ++i) {
    const uint64_t key = events[static_cast<size_t>(i)].data.u64;
    if (key == kNudge) {
      take_posted();
    } else {
      keys_.push_back(key);
    }
  }
  return keys_;
}

}  // namespace isogate::agent
