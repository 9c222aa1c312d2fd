#include "plugins/k8s/client/exec_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "lib/fd.h"
#include "lib/json.h"
#include "lib/net/transport.h"
#include "lib/net/websocket.h"
#include "lib/text.h"
#include "lib/thread.h"
#include "plugins/common/or_throw.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {

bool is_exec_status(std::string_view text) {
  const Json status = parse_shallow(text);
  const std::string verdict = text_at(status, "status");
  return verdict == "Success" || verdict == "Failure";
}

namespace {

using net::FrameReader;
using net::Opcode;
using net::Transport;
using std::chrono::milliseconds;

constexpr const char* kV5 = "v5.channel.k8s.io";
constexpr const char* kV4 = "v4.channel.k8s.io";
constexpr uint16_t kNormal = 1000, kProtocol = 1002, kTooBig = 1009;

SocketPair make_pair() {
  SocketPair pair = or_throw(make_socket_pair(SOCK_STREAM | SOCK_NONBLOCK, "cannot make a socket pair"));
  constexpr int kRoom = 512 << 10;
  for (const Fd* end : {&pair.own, &pair.theirs})
    ::setsockopt(end->get(), SOL_SOCKET, SO_SNDBUF, &kRoom, sizeof kRoom);
  return pair;
}

class Channel final : public ExecChannel {
 public:
  // `early`: bytes that came right behind the head of the 101.
  Channel(std::unique_ptr<Transport> transport, std::string early, bool v5, const ExecRequest& request)
      : transport_(std::move(transport)),
        v5_(v5),
        ping_every_(request.ping_every),
        pong_patience_(request.pong_patience),
        pair_(make_pair()),
        stop_(or_throw(make_event())),
        early_(std::move(early)),
        in_(std::make_unique_for_overwrite<char[]>(kBuffer)),
        out_(std::make_unique_for_overwrite<char[]>(net::kHeadMost + 1 + kBuffer)),
        ping_next_(Clock::now() + ping_every_) {
    thread_ = start_thread([this] { run(); });
  }
  ~Channel() override {
    signal_event(stop_.get());
    thread_.join();
  }

  [[nodiscard]] int fd() const override { return pair_.own.get(); }
  ssize_t read_some(char* to, size_t size) override {
    const ssize_t n = ::recv(fd(), to, size, 0);
    if (n > 0 || size == 0 || (n < 0 && would_block(errno))) return n;
    const auto end = ended();
    if (end && end->has_status) return 0;
    errno = ECONNRESET;
    return -1;
  }
  ssize_t write_some(const char* from, size_t size) override {
    return ::send(fd(), from, size, MSG_NOSIGNAL);
  }
  void shutdown() override {
    ::shutdown(fd(), SHUT_RDWR);  // first: its thread, once woken, sends the end of the input
    signal_event(stop_.get());
  }
  [[nodiscard]] std::chrono::steady_clock::time_point last_received() const override { return heard_; }
  [[nodiscard]] std::optional<ExecEnd> ended() const override {
    const std::lock_guard lock(mutex_);
    return end_;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr size_t kBuffer = 64 << 10, kStatusMost = 64 << 10,
                          kControlsMost = 1024;  // a flood of pings is answered as far as answers leave
  static constexpr int kNoChannel = -1, kStdout = 1, kStderr = 2, kError = 3, kClose = 255;
  static constexpr milliseconds kLinger{5'000};  // for a server that does not hang up

  // All that follows is its thread's.
  void run();
  void wait();
  [[nodiscard]] std::optional<Clock::time_point> next_time() const;
  void tell_time();

  bool receive();  // false: nothing more can be done now
  void decode();
  void hear(const FrameReader::Step& step);
  size_t deliver(std::string_view bytes);
  size_t give(std::string_view bytes);
  void keep_status(std::string_view bytes);
  void lose(const std::string& why);
  void break_off(const std::string& why, uint16_t code);

  bool send();  // likewise
  bool fill_frame();
  void take_stdin();
  void control(Opcode opcode, std::string_view payload) {
    if (controls_.size() < kControlsMost) net::append_message(controls_, opcode, payload);
  }

  const std::unique_ptr<Transport> transport_;
  const bool v5_;
  const milliseconds ping_every_, pong_patience_;
  const SocketPair pair_;
  const Fd stop_;

  std::string early_;
  std::unique_ptr<char[]> in_;
  size_t in_begin_ = 0, in_end_ = 0;
  FrameReader reader_;
  int channel_ = kNoChannel;
  bool blocked_ = false;  // the pair is full, and everything waits for it
  std::string status_;
  std::optional<ExecEnd> result_;

  std::unique_ptr<char[]> out_;
  size_t out_begin_ = 0, out_end_ = 0;
  std::string controls_;  // pings, pongs and the end, between two frames
  bool room_ = true, stdin_open_ = true;

  Clock::time_point ping_next_, linger_;
  std::optional<Clock::time_point> pinged_;  // and nothing came since

  bool over_ = false, closed_here_ = false;
  std::atomic<Clock::time_point> heard_{Clock::now()};
  mutable std::mutex mutex_;  // of `end_`
  std::optional<ExecEnd> end_;
  std::thread thread_;
};

void Channel::run() {
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
  ::shutdown(pair_.theirs.get(), SHUT_RDWR);
}

void Channel::wait() {
  const bool reads_stdin = stdin_open_ && !result_ && out_begin_ == out_end_;
  const auto events = [](bool in, bool out) {
    return static_cast<short>((in ? POLLIN : 0) | (out ? POLLOUT : 0));
  };
  std::array<pollfd, 3> watched{{
      {transport_->fd(), events(!blocked_, !room_), 0},
      {pair_.theirs.get(), events(reads_stdin, blocked_), 0},
      {stop_.get(), POLLIN, 0},
  }};
  int time = -1;
  if (const auto until = next_time()) {
    const auto left = std::chrono::ceil<milliseconds>(*until - Clock::now()).count();
    time = static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
  }
  if (::poll(watched.data(), watched.size(), time) < 0 && errno != EINTR)
    return lose("cannot wait: " + std::generic_category().message(errno));
  if (watched[2].revents != 0 || (watched[1].revents & (POLLHUP | POLLERR)) != 0) {
    closed_here_ = true;
    return lose("it was closed on this side");
  }
  if ((watched[0].revents & ~POLLIN) != 0) room_ = true;
  // The other side has gone while its bytes find no room: that is known now, and they are still delivered.
  if (blocked_ && (watched[0].revents & (POLLHUP | POLLERR)) != 0) {
    std::array<pollfd, 2> both{{{pair_.theirs.get(), POLLOUT, 0}, {stop_.get(), POLLIN, 0}}};
    (void)::poll(both.data(), both.size(), -1);
  }
  if ((watched[1].revents & POLLOUT) != 0) blocked_ = false;
}

std::optional<Channel::Clock::time_point> Channel::next_time() const {
  if (result_) return blocked_ ? std::nullopt : std::optional(linger_);
  if (pinged_ && !blocked_) return std::min(ping_next_, *pinged_ + pong_patience_);
  return ping_next_;
}

void Channel::tell_time() {
  const auto now = Clock::now();
  if (over_) return;
  if (result_) {
    if (!blocked_ && now >= linger_) over_ = true;
    return;
  }
  // What is not taken here cannot be heard either: only silence while listening counts. Nor is anything said
  // then: a server that has ended and gone answers it with a reset, and what it sent before is lost.
  if (blocked_) {
    pinged_.reset();
    ping_next_ = now + ping_every_;
  } else if (pinged_ && now >= *pinged_ + pong_patience_) {
    return lose("the API server did not answer a ping within " + std::to_string(pong_patience_.count()) +
                " ms");
  }
  if (now < ping_next_) return;
  ping_next_ = now + ping_every_;
  if (!pinged_) pinged_ = now;
  control(Opcode::kPing, "");
}

void Channel::lose(const std::string& why) {
  over_ = true;
  if (!result_) result_ = ExecEnd{.why = "the exec's stream was lost: " + why};
}

void Channel::break_off(const std::string& why, uint16_t code) {
  control(Opcode::kClose, net::close_payload(code));
  lose("the API server broke the protocol: " + why);
}

bool Channel::receive() {
  constexpr int kAtOnce = 16;
  for (int times = 0; times < kAtOnce && !over_ && !blocked_; ++times) {
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
      if (got < 0 && would_block(errno)) return false;
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
  return !over_ && !blocked_;
}

void Channel::decode() {
  while (!over_ && !blocked_) {
    const FrameReader::Step step = reader_.next({in_.get() + in_begin_, in_end_ - in_begin_});
    in_begin_ += step.taken;
    if (step.event == FrameReader::Event::kMore) return;
    hear(step);
  }
}

void Channel::hear(const FrameReader::Step& step) {
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
      return lose("the API server closed it" + (said.empty() ? "" : ": " + one_line(said)));
    }
    default:
      return break_off(reader_.why(), reader_.too_big() ? kTooBig : kProtocol);
  }
}

// How much of a message's next bytes is done with.
size_t Channel::deliver(std::string_view bytes) {
  size_t named = 0;
  if (channel_ == kNoChannel && !bytes.empty()) {
    channel_ = static_cast<unsigned char>(bytes[0]);
    named = 1;
    bytes.remove_prefix(1);
  }
  switch (channel_) {
    case kNoChannel:
    case kStderr:
      break;
    case kClose:
      if (!v5_) break_off("it spoke on channel 255", kProtocol);
      break;
    case kStdout:
      return named + give(bytes);
    case kError:
      keep_status(bytes);
      break;
    default:
      break_off("it spoke on channel " + std::to_string(channel_), kProtocol);
  }
  return named + bytes.size();
}

size_t Channel::give(std::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::send(pair_.theirs.get(), bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      blocked_ = true;
      break;
    } else if (errno != EINTR) {
      lose("it was closed on this side");
      break;
    }
  }
  if (result_) linger_ = Clock::now() + kLinger;
  return done;
}

void Channel::keep_status(std::string_view bytes) {
  if (bytes.empty() || result_) return;
  if (status_.size() + bytes.size() > kStatusMost) return break_off("its Status is too big", kTooBig);
  status_ += bytes;
  const size_t last = status_.find_last_not_of(" \n\r\t");
  if (last == std::string::npos || status_[last] != '}' || !is_exec_status(status_)) return;
  result_ = ExecEnd{.has_status = true};
  linger_ = Clock::now() + kLinger;
}

bool Channel::send() {
  constexpr int kAtOnce = 16;
  for (int times = 0; times < kAtOnce; ++times) {
    if (out_begin_ == out_end_ && !fill_frame()) return false;
    const ssize_t n = transport_->write_some(out_.get() + out_begin_, out_end_ - out_begin_);
    if (n > 0) {
      out_begin_ += static_cast<size_t>(n);
      room_ = true;
    } else if (n < 0 && would_block(errno)) {
      room_ = false;
      return false;
    } else {
      // What the other side said before it went can still be read: its end is noticed there.
      out_begin_ = out_end_ = 0;
      controls_.clear();
      stdin_open_ = false;
      return false;
    }
  }
  return true;
}

bool Channel::fill_frame() {
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

// One message: the channel's byte, then what there is. The head is put right before it.
void Channel::take_stdin() {
  char* const payload = out_.get() + net::kHeadMost;
  const ssize_t got = ::recv(pair_.theirs.get(), payload + 1, kBuffer, 0);
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

ApiRequest written(const ExecRequest& request) {
  const Resource what{"v1", request.name_space, "pods", request.pod, "exec"};
  ApiRequest out{
      .method = "GET", .path = what.path(), .attempt = "exec into " + what.text(), .name = what.name};
  out.query.emplace_back("container", request.container);
  for (const auto& argument : request.command) out.query.emplace_back("command", argument);
  for (const char* stream : {"stdin", "stdout", "stderr"}) out.query.emplace_back(stream, "true");
  return out;
}

// Throws unless the server agreed, by RFC 6455, to an offered protocol. True: to v5.
bool agreed(const HttpHead& head, const std::string& key, const std::string& attempt) {
  const auto fail = [&](const char* why) {
    throw NetError(ISOGATE_UNAVAILABLE, "cannot " + attempt + ": " + why, 0, true);
  };
  if (to_lower(head.header("upgrade")) != "websocket" ||
      head.header("sec-websocket-accept") != net::websocket_accept(key))
    fail("the API server's answer is no WebSocket's");
  if (!head.header("sec-websocket-extensions").empty())
    fail("the API server uses an extension nobody offered");
  const std::string protocol = head.header("sec-websocket-protocol");
  if (protocol != kV5 && protocol != kV4) fail("the API server speaks neither v5 nor v4.channel.k8s.io");
  return protocol == kV5;
}

}  // namespace

std::unique_ptr<ExecChannel> ExecChannel::open(Api& api, const ExecRequest& request, const Budget& budget) {
  const ApiRequest asked = written(request);
  const std::string key = net::new_websocket_key();
  ApiStream stream = api.open(asked,
                              {{"Connection", "Upgrade"},
                               {"Upgrade", "websocket"},
                               {"Sec-WebSocket-Version", "13"},
                               {"Sec-WebSocket-Key", key},
                               {"Sec-WebSocket-Protocol", std::string(kV5) + ", " + kV4}},
                              budget);
  const bool v5 = agreed(stream.head, key, asked.attempt);
  std::string early;
  auto transport = stream.connection->detach(early);
  return std::make_unique<Channel>(std::move(transport), std::move(early), v5, request);
}

}  // namespace isogate::k8s
