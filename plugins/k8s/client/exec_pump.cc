#include "plugins/k8s/client/exec_pump.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "plugins/k8s/client/exec_status.h"

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
      out_(std::make_unique_for_overwrite<char[]>(net::kHeadMost + 1 + kBuffer)),
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
  (void)send();  // the last frame, as far as it can be sent at once
  transport_->shutdown();
  {
    const std::lock_guard lock(mutex_);
    end_ = result_;
  }
  // Not closed: unread bytes can still be read at the other end.
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
  // The other side has closed while there is no room for its bytes: they are still delivered.
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
  // While its bytes are not read here, silence does not count. Nothing is sent then either: a server that has
  // ended would answer with a reset, and its earlier bytes would be lost.
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
  control(Opcode::kClose, net::close_payload(code));
  lose("the API server broke the protocol: " + why);
}

namespace {

constexpr uint16_t kNormal = 1000, kProtocol = 1002, kTooBig = 1009;

bool try_again(int failure) { return failure == EAGAIN || failure == EWOULDBLOCK || failure == EINTR; }

}  // namespace

bool ExecPump::receive() {
  constexpr int kAtOnce = 16;
  for (int times = 0; times < kAtOnce && !over_ && blocked_ == nullptr; ++times) {
    if (in_begin_ == in_end_) {
      in_begin_ = in_end_ = 0;
      ssize_t got = 0;
      if (!early_.empty()) {
        got = static_cast<ssize_t>(std::min(early_.size(), kBuffer));
        std::memcpy(in_.get(), early_.data(), static_cast<size_t>(got));
        early_.erase(0, static_cast<size_t>(got));
      } else {
        got = transport_->read_some(in_.get(), kBuffer);
      }
      if (got < 0 && try_again(errno)) return false;
      if (got <= 0) {
        lose(got == 0 ? "it ended without a Status"
                      : "cannot receive: " + std::generic_category().message(errno));
        return false;
      }
      in_end_ = static_cast<size_t>(got);
      pinged_.reset();
      heard_ = Clock::now();
    }
    decode();
  }
  return !over_ && blocked_ == nullptr;
}

void ExecPump::decode() {
  while (!over_ && blocked_ == nullptr) {
    const FrameReader::Step step = reader_.next({in_.get() + in_begin_, in_end_ - in_begin_});
    in_begin_ += step.taken;
    if (step.event == FrameReader::Event::kMore) return;
    hear(step);
  }
}

void ExecPump::hear(const FrameReader::Step& step) {
  switch (step.event) {
    case FrameReader::Event::kData: {
      if (step.begins) channel_ = kNoChannel;
      const size_t done = deliver(step.data);
      reader_.took(done);
      in_begin_ += done;
      return;
    }
    case FrameReader::Event::kPing:
      return control(Opcode::kPong, step.data);
    case FrameReader::Event::kPong:
      return;
    case FrameReader::Event::kClose: {
      control(Opcode::kClose, net::close_payload(kNormal));
      const std::string_view said = step.data.size() > 2 ? step.data.substr(2) : std::string_view();
      return lose("the API server closed it" + (said.empty() ? "" : ": " + printable(said)));
    }
    default:
      return break_off(reader_.why(), reader_.too_big() ? kTooBig : kProtocol);
  }
}

// How many of a message's next bytes are processed.
size_t ExecPump::deliver(std::string_view bytes) {
  size_t named = 0;
  if (channel_ == kNoChannel && !bytes.empty()) {
    channel_ = static_cast<unsigned char>(bytes[0]);
    named = 1;
    bytes.remove_prefix(1);
  }
  switch (channel_) {
    case kNoChannel:
      break;
    case kClose:
      if (!v5_) break_off("it spoke on channel 255", kProtocol);
      break;
    case kStdout:
      return named + give(pair_, bytes);
    case kStderr:
      if (stderr_fd_) return named + give(stderr_fd_, bytes);
      keep_stderr(bytes);
      break;
    case kError:
      keep_status(bytes);
      break;
    default:
      break_off("it spoke on channel " + std::to_string(channel_), kProtocol);
  }
  return named + bytes.size();
}

size_t ExecPump::give(const Fd& to, std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::send(to.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      blocked_ = &to;
      break;
    } else if (errno != EINTR) {
      lose("it was closed on this side");
      break;
    }
  }
  if (result_) linger_ = Clock::now() + kLinger;
  return done;
}

void ExecPump::keep_stderr(std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  stderr_ += bytes.substr(0, kStderrKept - stderr_.size());
}

void ExecPump::keep_status(std::string_view bytes) {
  if (bytes.empty() || result_) return;
  if (status_.size() + bytes.size() > kStatusMost) return break_off("its Status is too big", kTooBig);
  status_ += bytes;
  if (status_.find_last_not_of(" \n\r\t") == std::string::npos ||
      status_[status_.find_last_not_of(" \n\r\t")] != '}')
    return;
  result_ = parse_exec_status(status_);
  linger_ = Clock::now() + kLinger;
}

bool ExecPump::send() {
  constexpr int kAtOnce = 16;
  for (int times = 0; times < kAtOnce; ++times) {
    if (out_begin_ == out_end_ && !fill_frame()) return false;
    const ssize_t n = transport_->write_some(out_.get() + out_begin_, out_end_ - out_begin_);
    if (n > 0) {
      out_begin_ += static_cast<size_t>(n);
      room_ = true;
    } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
      room_ = false;
      return false;
    } else {
      // What the other side sent before it closed can still be read: its end is noticed there.
      out_begin_ = out_end_ = 0;
      controls_.clear();
      stdin_open_ = false;
      return false;
    }
  }
  return true;
}

bool ExecPump::fill_frame() {
  out_begin_ = out_end_ = 0;
  if (!controls_.empty()) {
    const size_t size = std::min(controls_.size(), kBuffer);
    std::memcpy(out_.get(), controls_.data(), size);
    controls_.erase(0, size);
    out_end_ = size;
  } else if (stdin_open_ && (closed_here_ || (!over_ && !result_))) {
    take_stdin();
  }
  return out_begin_ != out_end_;
}

// One message: the channel's byte, then the available bytes. The head is written right before it.
void ExecPump::take_stdin() {
  char* const payload = out_.get() + net::kHeadMost;
  const ssize_t got = ::recv(pair_.get(), payload + 1, kBuffer, 0);
  if (got < 0) return;
  size_t size = 1 + static_cast<size_t>(got);
  payload[0] = 0;
  if (got == 0) {
    stdin_open_ = false;
    if (!v5_) return;
    constexpr char kCloseStdin[] = {'\xff', 0};
    std::memcpy(payload, kCloseStdin, sizeof kCloseStdin);
    size = sizeof kCloseStdin;
  }
  const net::Mask mask = net::new_mask();
  char head[net::kHeadMost];
  const size_t head_size = net::write_head(head, Opcode::kBinary, size, mask);
  std::memcpy(payload - head_size, head, head_size);
  net::apply_mask(payload, size, mask);
  out_begin_ = net::kHeadMost - head_size;
  out_end_ = net::kHeadMost + size;
}

}  // namespace isogate::k8s
