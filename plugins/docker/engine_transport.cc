#include "plugins/docker/engine_transport.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "plugins/docker/engine_error.h"
#include "plugins/docker/engine_tls.h"
#include "runner/name_lookup.h"

namespace isogate::docker {
namespace {

[[noreturn]] void fail(const EngineAddress& address, const std::string& why) {
  throw EngineError(ISOGATE_UNAVAILABLE, "cannot reach the Engine at " + address.text() + ": " + why);
}

std::string text_of(int os_errno) { return std::generic_category().message(os_errno); }

[[noreturn]] void fail(const EngineAddress& address, Budget::Outcome outcome) {
  if (outcome == Budget::Outcome::kCancelled) throw EngineError(ISOGATE_CANCELLED, "cancelled");
  fail(address, "it did not take the connection in time");
}

class PlainTransport : public Transport {
 public:
  explicit PlainTransport(Fd socket) : socket_(std::move(socket)) {}
  [[nodiscard]] int fd() const override { return socket_.get(); }
  ssize_t read_some(char* to, size_t size) override { return ::recv(socket_.get(), to, size, 0); }
  ssize_t write_some(const char* from, size_t size) override {
    return ::send(socket_.get(), from, size, MSG_NOSIGNAL);
  }
  void end_output() override { ::shutdown(socket_.get(), SHUT_WR); }
  void shutdown() override { ::shutdown(socket_.get(), SHUT_RDWR); }
  [[nodiscard]] bool stale() override {
    pollfd watch{socket_.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&watch, 1, 0) != 0;
  }

 private:
  Fd socket_;
};

void connect_to(int socket, const sockaddr* to, socklen_t size, const EngineAddress& address,
                const Budget& budget) {
  using std::chrono::milliseconds;
  while (::connect(socket, to, size) != 0) {
    if (errno == EINTR || errno == EINPROGRESS || errno == EALREADY) {
      const auto outcome = budget.wait(socket, POLLOUT);
      if (outcome != Budget::Outcome::kReady) fail(address, outcome);
      int failure = 0;
      socklen_t length = sizeof failure;
      ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &length);
      if (failure != 0) fail(address, text_of(failure));
      return;
    }
    // A Unix socket whose queue is full: a stopped Engine. There is nothing to poll for.
    if (errno != EAGAIN) fail(address, text_of(errno));
    const auto outcome = budget.wait(-1, 0, milliseconds(20));
    if (outcome == Budget::Outcome::kCancelled || budget.over()) fail(address, outcome);
  }
}

Fd connect_unix(const EngineAddress& address, const Budget& budget) {
  Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) fail(address, text_of(errno));
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  if (address.unix_path.size() >= sizeof to.sun_path) fail(address, "its path is too long");
  std::memcpy(to.sun_path, address.unix_path.data(), address.unix_path.size());
  connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to, address, budget);
  return socket;
}

std::vector<NameAddress> look_up(const EngineAddress& address, const Budget& budget) {
  const auto lookup = NameLookups::shared().begin(address.host, address.port);
  if (!lookup) fail(address, lookup.error().message);
  if (!(*lookup)->over()) {
    const auto outcome = budget.wait((*lookup)->done(), POLLIN);
    if (outcome == Budget::Outcome::kLate) fail(address, "its name was not resolved in time");
    if (outcome != Budget::Outcome::kReady) fail(address, outcome);
  }
  const NameAnswer answer = (*lookup)->answer();
  if (answer.failure != 0) fail(address, ::gai_strerror(answer.failure));
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

Fd connect_tcp(const EngineAddress& address, const Budget& budget) {
  const auto found = look_up(address, budget);
  for (size_t i = 0; i < found.size(); ++i) {
    Fd socket(::socket(found[i].to.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    try {
      if (!socket) fail(address, text_of(errno));
      keep_alive(socket.get());
      connect_to(socket.get(), reinterpret_cast<const sockaddr*>(&found[i].to), found[i].size, address,
                 budget);
      return socket;
    } catch (const EngineError& error) {
      if (error.status() == ISOGATE_CANCELLED || budget.over() || i + 1 == found.size()) throw;
    }
  }
  fail(address, "its name has no address");
}

}  // namespace

std::unique_ptr<Transport> Transport::connect(const EngineAddress& address, const Budget& budget) {
  if (!address.unix_path.empty()) return adopt(connect_unix(address, budget));
  Fd socket = connect_tcp(address, budget);
  if (address.tls) return start_tls(std::move(socket), address, budget);
  return adopt(std::move(socket));
}

std::unique_ptr<Transport> Transport::adopt(Fd socket) {
  return std::make_unique<PlainTransport>(std::move(socket));
}

}  // namespace isogate::docker
