#include "plugins/k8s/transport.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "plugins/k8s/api_error.h"
#include "plugins/k8s/proxy.h"
#include "plugins/k8s/tls.h"
#include "runner/name_lookup.h"

namespace isogate::k8s {
namespace {

// Where a connection goes, for messages.
struct Place {
  const std::string& host;
  uint16_t port;
};

[[noreturn]] void fail(const Place& place, const std::string& why) {
  throw ApiError(ISOGATE_UNAVAILABLE,
                 "cannot connect to " + place.host + ":" + std::to_string(place.port) + ": " + why);
}

std::string text_of(int os_errno) { return std::generic_category().message(os_errno); }

[[noreturn]] void fail(const Place& place, Budget::Outcome outcome) {
  if (outcome == Budget::Outcome::kCancelled) throw ApiError(ISOGATE_CANCELLED, "cancelled");
  fail(place, "it did not take the connection in time");
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

void connect_to(int socket, const sockaddr* to, socklen_t size, const Place& place, const Budget& budget) {
  while (::connect(socket, to, size) != 0) {
    if (errno == EINTR || errno == EINPROGRESS || errno == EALREADY) {
      const auto outcome = budget.wait(socket, POLLOUT);
      if (outcome != Budget::Outcome::kReady) fail(place, outcome);
      int failure = 0;
      socklen_t length = sizeof failure;
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &length);
      if (failure != 0) fail(place, text_of(failure));
      return;
    }
    fail(place, text_of(errno));
  }
}

std::vector<NameAddress> look_up(const Place& place, const Budget& budget) {
  const auto lookup = NameLookups::shared().begin(place.host, place.port);
  if (!lookup) fail(place, lookup.error().message);
  if (!(*lookup)->over()) {
    const auto outcome = budget.wait((*lookup)->done(), POLLIN);
    if (outcome == Budget::Outcome::kLate) fail(place, "its name was not resolved in time");
    if (outcome != Budget::Outcome::kReady) fail(place, outcome);
  }
  const NameAnswer answer = (*lookup)->answer();
  if (answer.failure != 0) fail(place, ::gai_strerror(answer.failure));
  return answer.found;
}

// A peer that is gone without a word is noticed within half a minute, also while nothing is sent.
void keep_alive(int socket) {
  const auto set = [socket](int level, int option, int value) {
    ::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

}  // namespace

Fd connect_tcp(const std::string& host, uint16_t port, const Budget& budget) {
  const Place place{host, port};
  const auto found = look_up(place, budget);
  for (size_t i = 0; i < found.size(); ++i) {
    Fd socket(::socket(found[i].to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    try {
      if (!socket) fail(place, text_of(errno));
      keep_alive(socket.get());
      connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&found[i].to), found[i].size, place, budget);
      return socket;
    } catch (const ApiError& error) {
      if (error.status() == ISOGATE_CANCELLED || budget.over() || i + 1 == found.size()) throw;
    }
  }
  fail(place, "its name has no address");
}

std::vector<std::string> addresses_of(const std::string& host, const Budget& budget) {
  std::vector<std::string> addresses;
  for (const NameAddress& each : look_up({host, 0}, budget)) {
    char text[NI_MAXHOST];
    const auto* to = reinterpret_cast<const sockaddr*>(&each.to);
    if (::getnameinfo(to, each.size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      addresses.emplace_back(text);
  }
  return addresses;
}

std::unique_ptr<Transport> Transport::connect(const ClusterAccess& access, const Identity& identity,
                                              const Budget& budget) {
  const bool proxied = access.proxy.has_value();
  Fd socket = proxied ? connect_tcp(access.proxy->host, access.proxy->port, budget)
                      : connect_tcp(access.host, access.port, budget);
  if (proxied) connect_through(socket, access, budget);
  if (access.tls) return start_tls(std::move(socket), access, identity, budget);
  return adopt(std::move(socket));
}

std::unique_ptr<Transport> Transport::adopt(Fd socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace isogate::k8s
