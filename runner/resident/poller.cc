#include "runner/resident/poller.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

namespace isogate::resident {
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

std::span<const uint64_t> Poller::wait(int patience_ms) {
  std::array<epoll_event, kMost> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMost, patience_ms);
  size_t told = 0;
  for (int i = 0; i < count; ++i) {
    if (events[static_cast<size_t>(i)].data.u64 != kNudge) {
      keys_[told++] = events[static_cast<size_t>(i)].data.u64;
      continue;
    }
    uint64_t nudges = 0;
    [[maybe_unused]] const ssize_t size = ::read(nudge_.get(), &nudges, sizeof nudges);
  }
  return {keys_, told};
}

}  // namespace isogate::resident
