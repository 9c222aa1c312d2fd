// How long one call to a server may take, and what ends it early. A value; the descriptor is borrowed.
#pragma once

#include <chrono>
#include <string>

#include "isogate/backend.hpp"

namespace isogate::net {

class Budget {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kUsual{30'000};

  // The time that the host gave the call, and no more than `most`.
  Budget(const sdk::Call& call, std::chrono::milliseconds most = kUsual);  // NOLINT(*-explicit-*)
  // For work of the caller's own. `cancel_fd` as in isogate_call.
  explicit Budget(std::chrono::milliseconds most, int cancel_fd = -1);
  // For each wait by itself: a server that goes on is never late. Not for Transport::connect().
  static Budget of_each_wait(std::chrono::milliseconds most, int cancel_fd = -1);
  // Without a deadline: only cancel_fd or the end of the stream ends a wait for news.
  static Budget endless(int cancel_fd);

  enum class Outcome { kReady, kCancelled, kLate };
  // Waits until `fd` has one of `events`; kLate also after `slice`. With fd -1: for work that can only be
  // retried.
  [[nodiscard]] Outcome wait(int fd, short events,
                             std::chrono::milliseconds slice = std::chrono::milliseconds::max()) const;
  // The same, or throws NetError: ISOGATE_CANCELLED, or ISOGATE_UNAVAILABLE with `late` as its message.
  void await(int fd, short events, const std::string& late,
             std::chrono::milliseconds slice = std::chrono::milliseconds::max()) const;
  [[nodiscard]] bool over() const { return !endless_ && Clock::now() >= end_; }
  [[nodiscard]] Clock::duration left() const {
    return endless_ ? Clock::duration::max() : end_ - Clock::now();
  }
  [[nodiscard]] int cancel_fd() const { return cancel_fd_; }
  // How a wait for `events` that was too long is described: "did not answer within 30 s", "sent nothing for
  // 60 s".
  [[nodiscard]] std::string lateness(short events) const;

 private:
  Budget() = default;
  int cancel_fd_ = -1;
  bool endless_ = false, each_wait_ = false;
  Clock::time_point end_;
  std::chrono::milliseconds whole_{0};
};

}  // namespace isogate::net
