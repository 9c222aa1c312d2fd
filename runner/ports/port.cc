#include "runner/ports/port.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace isogate {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDialWithin{5};
constexpr size_t kHeld = 65536;

Error cancelled() { return {ISOGATE_CANCELLED, 0, "cancelled"}; }

// Two sockets that dial each other at once connect, and so does a socket that happens to use its target port
// as its own.
bool is_connected_to_itself(int socket) {
  sockaddr_storage own{}, peer{};
  socklen_t own_size = sizeof own, peer_size = sizeof peer;
  return ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &peer_size) == 0 &&
         own_size == peer_size && std::memcmp(&own, &peer, own_size) == 0;
}

// 0, or an errno; ECANCELED: cancel_fd fired.
int connect_within(int socket, const sockaddr* address, socklen_t size, int cancel_fd,
                   Clock::time_point until) {
  if (::connect(socket, address, size) != 0) {
    if (errno != EINPROGRESS) return errno;
    for (;;) {
      std::array<pollfd, 2> watched{{{socket, POLLOUT, 0}, {cancel_fd, POLLIN, 0}}};
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
      if (left <= 0) return ETIMEDOUT;
      if (::poll(watched.data(), watched.size(), static_cast<int>(left)) < 0 && errno != EINTR) return errno;
      if (watched[1].revents != 0) return ECANCELED;
      if (watched[0].revents != 0) break;
    }
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &length) != 0) return errno;
    if (error != 0) return error;
  }
  return is_connected_to_itself(socket) ? ECONNREFUSED : 0;
}

int dial_four(int socket, uint16_t port, int cancel_fd, Clock::time_point until) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port);
  return connect_within(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address, cancel_fd,
                        until);
}

int dial_six(int socket, uint16_t port, int cancel_fd, Clock::time_point until) {
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_addr = in6addr_loopback;
  address.sin6_port = htons(port);
  return connect_within(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address, cancel_fd,
                        until);
}

// One direction: the bytes that were read and not written yet.
class Half {
 public:
  [[nodiscard]] bool reads() const { return !ended_ && at_ == size_; }
  [[nodiscard]] bool writes() const { return at_ < size_; }
  // Everything that arrived is written, and nothing more arrives.
  [[nodiscard]] bool is_over() const { return ended_ && at_ == size_; }

  // 0, or an errno. After an end or a failure it reads no more.
  int read(int from) {
    if (!bytes_) bytes_ = std::make_unique<std::array<char, kHeld>>();
    const ssize_t n = ::read(from, bytes_->data(), bytes_->size());
    if (n < 0 && would_block(errno)) return 0;
    ended_ = n <= 0;
    if (n < 0) return errno;
    at_ = 0;
    size_ = static_cast<size_t>(n);
    return 0;
  }
  int write(int to) {
    const ssize_t n = ::send(to, bytes_->data() + at_, size_ - at_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == ENOTSOCK) return write_to_pipe(to);
    return advance(n);
  }
  // Further bytes are not discarded: they are not read.
  void drop() {
    ended_ = true;
    at_ = size_ = 0;
  }

 private:
  // It may block, but not for so few bytes if poll(2) reports room.
  int write_to_pipe(int to) {
    constexpr size_t kRoom = 4096;
    pollfd room{to, POLLOUT, 0};
    if (::poll(&room, 1, 0) <= 0) return 0;
    return advance(::write(to, bytes_->data() + at_, std::min(size_ - at_, kRoom)));
  }
  int advance(ssize_t n) {
    if (n < 0) return would_block(errno) ? 0 : errno;
    at_ += static_cast<size_t>(n);
    return 0;
  }

  std::unique_ptr<std::array<char, kHeld>> bytes_;
  size_t at_ = 0, size_ = 0;
  bool ended_ = false;
};

}  // namespace

Result<PortSockets> make_port_sockets() {
  constexpr int kType = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
  PortSockets sockets;
  sockets.four = Fd(::socket(AF_INET, kType, 0));
  if (!sockets.four) return os_error("cannot make a socket", errno);
  sockets.six = Fd(::socket(AF_INET6, kType, 0));
  if (!sockets.six && errno != EAFNOSUPPORT) return os_error("cannot make a socket", errno);
  const int on = 1;
  for (const Fd* each : {&sockets.four, &sockets.six})
    if (*each) ::setsockopt(each->get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return sockets;
}

Result<Fd> dial(PortSockets sockets, uint16_t port, int cancel_fd) {
  const auto until = Clock::now() + kDialWithin;
  const int failed = dial_four(sockets.four.get(), port, cancel_fd, until);
  if (failed == 0) return std::move(sockets.four);
  int last = failed;
  if (failed == ECONNREFUSED && sockets.six) {
    last = dial_six(sockets.six.get(), port, cancel_fd, until);
    if (last == 0) return std::move(sockets.six);
    if (last == EADDRNOTAVAIL || last == ENETUNREACH || last == EACCES)
      last = failed;  // this network has no IPv6
  }
  const std::string where = "port " + std::to_string(port) + " of the sandbox";
  switch (last) {
    case ECANCELED:
      return cancelled();
    case ECONNREFUSED:
      return Error{ISOGATE_NOT_FOUND, last, "nothing listens on " + where};
    case ETIMEDOUT:
      return Error{ISOGATE_NOT_FOUND, last,
                   "what listens on " + where + " accepted no connection for " +
                       std::to_string(kDialWithin.count()) + " s"};
    default:
      return os_error("cannot connect to " + where, last);
  }
}

Result<void> carry(const Carried& carried) {
  Half in, out;
  bool in_over = false, out_over = false;
  int broken = 0;  // errno of the connection
  while (!in_over || !out_over) {
    // A descriptor without a pending operation is not watched: its end, already seen, would be reported again
    // and again.
    const auto one = [](int fd, bool wanted, short events) { return pollfd{wanted ? fd : -1, events, 0}; };
    std::array<pollfd, 5> watched{
        {one(carried.cancel_fd, carried.cancel_fd >= 0, POLLIN), one(carried.in_fd, in.reads(), POLLIN),
         one(carried.socket, in.writes(), POLLOUT), one(carried.socket, out.reads(), POLLIN),
         one(carried.out_fd, out.writes(), POLLOUT)}};
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR)
      return os_error("cannot wait", errno);
    if (watched[0].revents != 0) return cancelled();
    if (watched[1].revents != 0 && in.read(carried.in_fd) != 0) return cancelled();
    // A peer that accepts nothing more may still have sent something.
    if (in.writes()) {
      if (const int failed = in.write(carried.socket); failed != 0) {
        broken = failed;
        in.drop();
      }
    }
    if (watched[3].revents != 0) {
      if (const int failed = out.read(carried.socket); failed != 0) broken = failed;
    }
    if (out.writes() && out.write(carried.out_fd) != 0) return cancelled();
    if (in.is_over() && !std::exchange(in_over, true)) ::shutdown(carried.socket, SHUT_WR);
    if (broken != 0 && out.is_over()) break;
    if (out.is_over() && !std::exchange(out_over, true)) carried.out_ended();
  }
  if (broken == 0) return {};
  Error error = os_error("the connection to the port broke off", broken);
  error.status = ISOGATE_IO;
  return error;
}

Result<void> carry_stream(int socket, int stream_fd, int cancel_fd) {
  return carry({socket, stream_fd, stream_fd, [stream_fd] { ::shutdown(stream_fd, SHUT_WR); }, cancel_fd});
}

}  // namespace isogate
