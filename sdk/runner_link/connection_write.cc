#include <algorithm>
#include <array>
#include <cerrno>

#include "connection.h"

namespace isogate::sdk::link {
namespace {

constexpr size_t kKept = 128 << 10;  // of the buffer, between two frames

bool is_end_of_stream(int code) {
  return code == EPIPE || code == ECONNRESET || code == ENOTCONN || code == ESHUTDOWN;
}

bool is_past(Clock::time_point until) { return until != kForEver && Clock::now() >= until; }

}  // namespace

bool Connection::has_turn(Pending& call, bool give_up) {
  const std::lock_guard lock(mutex_);
  if (writer_ == &call) return true;
  if (give_up) std::erase(writers_, &call);
  return false;
}

bool Connection::take_turn(Pending& call, const Bound& bound) {
  {
    const std::lock_guard lock(mutex_);
    if (dead_) return false;
    if (writer_ == nullptr) {
      writer_ = &call;
      return true;
    }
    writers_.push_back(&call);
  }
  std::array<pollfd, 1> watched{{{bound.cancel_fd, POLLIN, 0}}};
  for (;;) {
    wait(call, Awaits::kTurn, watched, bound.until);
    const bool give_up = !alive() || watched[0].revents != 0 || is_past(bound.until);
    if (has_turn(call, give_up)) return true;
    if (give_up) return false;
  }
}

void Connection::pass_turn(Pending& call) {
  for (;;) {
    if (outbox_.capacity() > kKept) outbox_ = {};
    outbox_.clear();
    {
      const std::lock_guard lock(mutex_);
      if (posted_.empty() || dead_) return hand_on_turn();
      outbox_.swap(posted_);
    }
    flush(call, {}, {});
  }
}

void Connection::hand_on_turn() {
  writer_ = nullptr;
  if (writers_.empty()) return;
  writer_ = writers_.front();
  writers_.pop_front();
  reach(*writer_);
}

bool Connection::flush(Pending& call, const Bound& bound, std::span<const int> fds) {
  for (size_t done = 0; done < outbox_.size();) {
    if (!alive()) return false;
    const char* from = outbox_.data() + done;
    const size_t size = outbox_.size() - done;
    const bool attach = done == 0 && !fds.empty();
    const ssize_t sent =
        attach ? stream_->write_with(from, size, fds.data(), fds.size()) : stream_->write_some(from, size);
    const int code = errno;
    if (sent > 0) {
      done += static_cast<size_t>(sent);
    } else if (sent < 0 && code == EAGAIN) {
      if (!wait_for_room(call, done == 0 ? bound : Bound{})) return false;
    } else if (attach && sent < 0 && code != EINTR && !is_end_of_stream(code)) {
      throw Error(ISOGATE_RESOURCE_EXHAUSTED,
                  "cannot pass descriptors to the runner: " + std::generic_category().message(code), code);
    } else if (sent == 0 || code != EINTR) {
      fail("cannot send: " + std::generic_category().message(sent == 0 ? EPIPE : code));
      return false;
    }
  }
  return true;
}

bool Connection::wait_for_room(Pending& call, const Bound& bound) {
  auto stalled = Clock::now() + patience_.stalled;
  std::array<pollfd, 2> watched{{{stream_->room_fd(), POLLOUT, 0}, {bound.cancel_fd, POLLIN, 0}}};
  while (alive()) {
    wait(call, Awaits::kRoom, watched, std::min(stalled, bound.until));
    if (watched[1].revents != 0) return false;
    if (watched[0].revents != 0) return true;
    if (is_past(bound.until)) return false;
    if (stream_->is_away()) stalled = Clock::now() + patience_.stalled;
    if (is_past(stalled)) fail("it takes no more bytes");
  }
  return false;
}

}  // namespace isogate::sdk::link
