#include "plugins/k8s/exec_pump.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace isogate::k8s {

using std::chrono::milliseconds;

ExecPump::ExecPump(std::unique_ptr<Transport> transport, std::string early, bool v5,
                   const ExecRequest& request, Fd pair, Fd stderr_fd)
    : transport_(std::move(transport)),
      v5_(v5),
      ping_every_(request.ping_every),
      pong_patience_(request.pong_patience),
      pair_(std::move(pair)),
      stderr_fd_(std::move(stderr_fd)),
      stop_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      done_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      early_(std::move(early)),
      in_(std::make_unique_for_overwrite<char[]>(kBuffer)),
      out_(std::make_unique_for_overwrite<char[]>(kHeadMost + 1 + kBuffer)),
      stdin_open_(request.stdin_open),
      ping_next_(Clock::now() + ping_every_) {
  if (!stop_ || !done_) sdk::fail_with_errno("cannot make an eventfd", errno);
  // Signals are the host's.
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

ExecPump::~ExecPump() {
  stop();
  thread_.join();
}

void ExecPump::stop() { signal_event(stop_.get()); }

std::optional<ExecEnd> ExecPump::ended() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

std::string ExecPump::stderr_bytes() const {
  const std::lock_guard lock(mutex_);
  return stderr_;
}

void ExecPump::run() {
  try {
    while (!over_) {
      bool more = receive();
      more = send() || more;
      tell_time();
      if (!over_ && !more) wait();
    }
  } catch (const std::exception& error) {
    lose(error.what());
  }
  (void)send();  // the last word, as far as it goes at once
  transport_->shutdown();
  {
    const std::lock_guard lock(mutex_);
    end_ = result_;
  }
  // Not closed: what is unread on the other end stays to be read.
  ::shutdown(pair_.get(), SHUT_RDWR);
  if (stderr_fd_) ::shutdown(stderr_fd_.get(), SHUT_RDWR);
  signal_event(done_.get());
}

void ExecPump::wait() {
  const bool reads_stdin = stdin_open_ && !result_ && out_begin_ == out_end_;
  const auto events = [](bool in, bool out) {
    return static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0));
  };
  std::array<pollfd, 4> watched{{
      {transport_->fd(), events(blocked_ == nullptr, !room_), 0},
      {pair_.get(), events(reads_stdin, blocked_ == &pair_), 0},
      {blocked_ == &stderr_fd_ ? stderr_fd_.get() : -1, POLLOUT, 0},
      {stop_.get(), POLLIN, 0},
  }};
  int time = -1;
  if (const auto until = next_time()) {
    const auto left = std::chrono::ceil<milliseconds>(*until - Clock::now()).count();
    time = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }
  if (::poll(watched.data(), watched.size(), time) < 0 && errno != EINTR)
    return lose("cannot wait: " + std::generic_category().message(errno));
  if (watched[3].revents != 0 || (watched[1].revents & (POLLHUP | POLLERR)) != 0) {
    closed_here_ = true;
    return lose("it was closed on this side");
  }
  if ((watched[0].revents & ~POLLIN) != 0) room_ = true;
  // The other side has gone while its bytes find no room: that is known now, and they are still delivered.
  if (blocked_ != nullptr && (watched[0].revents & (POLLHUP | POLLERR)) != 0) {
    std::array<pollfd, 2> both{{{blocked_->get(), POLLOUT, 0}, {stop_.get(), POLLIN, 0}}};
    (void)::poll(both.data(), both.size(), -1);
  }
  if (blocked_ != nullptr && ((watched[1].revents | watched[2].revents) & (POLLOUT | POLLHUP | POLLERR)) != 0)
    blocked_ = nullptr;
}

std::optional<ExecPump::Clock::time_point> ExecPump::next_time() const {
  if (result_) return blocked_ != nullptr ? std::nullopt : std::optional(linger_);
  if (pinged_ && pong_patience_.count() > 0 && blocked_ == nullptr)
    return std::min(ping_next_, *pinged_ + pong_patience_);
  return ping_next_;
}

void ExecPump::tell_time() {
  const auto now = Clock::now();
  if (over_) return;
  if (result_) {
    if (blocked_ == nullptr && now >= linger_) over_ = true;
    return;
  }
  // What is not taken here cannot be heard either: only silence while listening counts. Nor is anything said
  // then: a server that has ended and gone answers it with a reset, and what it sent before is lost.
  if (blocked_ != nullptr) {
    pinged_.reset();
    ping_next_ = now + ping_every_;
  } else if (pinged_ && pong_patience_.count() > 0 && now >= *pinged_ + pong_patience_) {
    return lose("the API server did not answer a ping within " + std::to_string(pong_patience_.count()) +
                " ms");
  }
  if (now < ping_next_) return;
  ping_next_ = now + ping_every_;
  if (!pinged_) pinged_ = now;
  control(Opcode::kPing, "");
}

void ExecPump::lose(const std::string& why) {
  over_ = true;
  if (!result_) result_ = ExecEnd{.how = ExecEnd::How::kLost, .why = "the exec's stream was lost: " + why};
}

void ExecPump::break_off(const std::string& why, uint16_t code) {
  control(Opcode::kClose, close_payload(code));
  lose("the API server broke the protocol: " + why);
}

}  // namespace isogate::k8s
