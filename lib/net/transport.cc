#include "lib/net/transport.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lib/net/name_lookup.h"
#include "lib/net/tls.h"
#include "lib/text.h"

namespace isogate::net {
namespace {

[[noreturn]] void fail_to(const std::string& attempt, const std::string& why) {
  throw NetError(ISOGATE_UNAVAILABLE, attempt + ": " + why);
}

[[noreturn]] void fail_to(const std::string& attempt, int os_errno) {
  fail_to(attempt, std::generic_category().message(os_errno));
}

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(Fd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] int fd() const override { return socket_.get(); }
  ssize_t read_some(char* to, size_t size) override { return ::recv(socket_.get(), to, size, 0); }
  ssize_t write_some(const char* from, size_t size) override {
    return ::send(socket_.get(), from, size, MSG_NOSIGNAL);
  }
  void shutdown() override { ::shutdown(socket_.get(), SHUT_RDWR); }
  [[nodiscard]] bool stale() override {
    pollfd watch{socket_.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&watch, 1, 0) != 0;
  }

 private:
  Fd socket_;
};

// Within `most` of the budget.
void connect_to(int socket, const sockaddr* to, socklen_t size, const std::string& attempt,
                const Budget& budget, std::chrono::milliseconds most = std::chrono::milliseconds::max()) {
  constexpr std::chrono::milliseconds kQueueLook{20};
  const std::string late = attempt + ": it did not take the connection in time";
  while (::connect(socket, to, size) != 0) {
    if (errno == EINTR || errno == EINPROGRESS || errno == EALREADY) {
      budget.await(socket, POLLOUT, late, most);
      int failure = 0;
      socklen_t length = sizeof failure;
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &length);
      if (failure != 0) fail_to(attempt, failure);
      return;
    }
    // A Unix socket whose queue is full: a stopped server. There is nothing to poll for.
    if (errno != EAGAIN || to->sa_family != AF_UNIX) fail_to(attempt, errno);
    const auto outcome = budget.wait(-1, 0, kQueueLook);
    if (outcome == Budget::Outcome::kCancelled) throw NetError(ISOGATE_CANCELLED, "cancelled");
    if (budget.over()) throw NetError(ISOGATE_UNAVAILABLE, late);
  }
}

Fd connect_unix(const std::string& path, const std::string& attempt, const Budget& budget) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail_to(attempt, errno);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (path.size() >= sizeof to.sun_path) fail_to(attempt, "its path is too long");
  std::memcpy(to.sun_path, path.data(), path.size());
  connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to, attempt, budget);
  return socket;
}

std::vector<NameAddress> look_up(const std::string& host, uint16_t port, const std::string& attempt,
                                 const Budget& budget) {
  const auto lookup = NameLookups::shared().begin(host, port);
  if (!lookup) fail_to(attempt, lookup.error().message);
  if (!(*lookup)->over())
    budget.await((*lookup)->done(), POLLIN, attempt + ": its name was not resolved in time");
  const NameAnswer answer = (*lookup)->answer();
  if (answer.failure != 0) fail_to(attempt, ::gai_strerror(answer.failure));
  return answer.found;
}

void set_option(int socket, int level, int option, int value) {
  ::setsockopt(socket, level, option, &value, sizeof value);
}

// A peer that vanished is noticed within half a minute while nothing is sent.
void keep_alive(int socket) {
  set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
}

// The same while something is sent; a peer that reads nothing counts as vanished.
void limit_unacknowledged(int socket) { set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000); }

// An address that does not answer leaves time for those after it.
std::chrono::milliseconds share_of(const Budget& budget, size_t addresses) {
  constexpr std::chrono::milliseconds kLeast{2'000};
  if (addresses == 1) return std::chrono::milliseconds::max();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(budget.left());
  return std::max(kLeast, left / static_cast<int64_t>(addresses));
}

void send_all(int socket, std::string_view bytes, const std::string& attempt, const Budget& budget) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (would_block(errno)) {
      budget.await(socket, POLLOUT, attempt + ": it did not answer in time");
    } else {
      fail_to(attempt, errno);
    }
  }
}

// The server behind the proxy never sends first: only the proxy's response can be there.
std::string receive_head(int socket, const std::string& attempt, const Budget& budget) {
  constexpr size_t kProxyHeadMost = 16384;
  std::string head;
  std::array<char, 2048> buffer{};
  while (head.find("\r\n\r\n") == std::string::npos) {
    if (head.size() > kProxyHeadMost) fail_to(attempt, "its answer has no end");
    const ssize_t n = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (n > 0) {
      head.append(buffer.data(), static_cast<size_t>(n));
    } else if (n == 0) {
      fail_to(attempt, "it hung up");
    } else if (would_block(errno)) {
      budget.await(socket, POLLIN, attempt + ": it did not answer in time");
    } else {
      fail_to(attempt, errno);
    }
  }
  return head;
}

void connect_through(int socket, const Target& target, const std::string& attempt, const Budget& budget) {
  constexpr size_t kStatusAt = 9, kStatusSize = 3;  // "HTTP/1.1 200"
  const std::string to = join_address(target.host, std::to_string(target.port));
  std::string request = "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n";
  if (!target.proxy->authorization.empty())
    request += "Proxy-Authorization: " + target.proxy->authorization + "\r\n";
  send_all(socket, request + "\r\n", attempt, budget);
  const std::string head = receive_head(socket, attempt, budget);
  if (!head.starts_with("HTTP/1.") || head.size() < kStatusAt + kStatusSize)
    fail_to(attempt, "it gave an answer that is no HTTP");
  const std::string first = head.substr(0, head.find('\r'));
  if (head[kStatusAt] != '2') fail_to(attempt, "it answered " + one_line(first.substr(kStatusAt), 80));
  if (head.find("\r\n\r\n") + 4 != head.size()) fail_to(attempt, "it sent more than an answer");
}

}  // namespace

Fd connect_to_one(const std::vector<NameAddress>& addresses, const std::string& attempt,
                  const Budget& budget) {
  for (size_t left = addresses.size(); left > 0; --left) {
    const NameAddress& each = addresses[addresses.size() - left];
    Fd socket(::socket(each.to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    try {
      if (!socket) fail_to(attempt, errno);
      keep_alive(socket.get());
      connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&each.to), each.size, attempt, budget,
                 share_of(budget, left));
      return socket;
    } catch (const NetError& error) {
      if (error.status() == ISOGATE_CANCELLED || budget.over() || left == 1) throw;
    }
  }
  fail_to(attempt, "its name has no address");
}

std::unique_ptr<Transport> Transport::connect(const Target& target, const Budget& budget) {
  std::string attempt = "cannot reach " + target.text();
  if (!target.unix_path.empty()) return adopt(connect_unix(target.unix_path, attempt, budget));
  Fd socket;
  if (target.proxy) {
    attempt += " through proxy " + join_address(target.proxy->host, std::to_string(target.proxy->port));
    socket =
        connect_to_one(look_up(target.proxy->host, target.proxy->port, attempt, budget), attempt, budget);
    connect_through(socket.get(), target, attempt, budget);
  } else {
    socket = connect_to_one(look_up(target.host, target.port, attempt, budget), attempt, budget);
  }
  if (!target.reads_late) limit_unacknowledged(socket.get());
  if (target.tls) return start_tls(std::move(socket), target, budget);
  return adopt(std::move(socket));
}

std::unique_ptr<Transport> Transport::adopt(Fd socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

std::vector<std::string> addresses_of(const std::string& host, const Budget& budget) {
  std::vector<std::string> addresses;
  for (const NameAddress& each : look_up(host, 0, "cannot look up " + host, budget)) {
    char text[NI_MAXHOST];
    const auto* to = reinterpret_cast<const sockaddr*>(&each.to);
    if (::getnameinfo(to, each.size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  return addresses;
}

}  // namespace isogate::net
