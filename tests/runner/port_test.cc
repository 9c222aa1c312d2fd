// Connections to ports, without processes and namespaces.
#include "runner/ports/port.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <future>
#include <vector>

namespace isogate {
namespace {

struct Listener {
  explicit Listener(int backlog = 16) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_TRUE(backlog < 0 || ::listen(socket.get(), backlog) == 0);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  Fd socket;
  uint16_t port = 0;
};

Result<Fd> dial_here(uint16_t port, int cancel_fd = -1) {
  auto sockets = make_port_sockets();
  EXPECT_TRUE(sockets.ok());
  return dial(std::move(*sockets), port, cancel_fd);
}

TEST(Ports, NobodyListening) {
  const Listener silent(-1);  // bound, so that nothing else listens there
  const auto dialled = dial_here(silent.port);
  ASSERT_FALSE(dialled.ok());
  EXPECT_EQ(dialled.error().status, ISOGATE_NOT_FOUND);
  EXPECT_EQ(dialled.error().os_errno, ECONNREFUSED);
}

TEST(Ports, AFullQueueIsWaitedForAWhile) {
  const Listener full(0);
  std::vector<Fd> waiting;
  Result<Fd> last = dial_here(full.port);
  for (int i = 0; i < 4 && last.ok(); ++i) {
    waiting.push_back(std::move(*last));
    last = dial_here(full.port);
  }
  ASSERT_FALSE(last.ok());
  EXPECT_EQ(last.error().status, ISOGATE_NOT_FOUND);
  EXPECT_EQ(last.error().os_errno, ETIMEDOUT);
  auto cancel = make_event();
  signal_event(cancel->get());
  const auto cancelled = dial_here(full.port, cancel->get());
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().status, ISOGATE_CANCELLED);
}

// The kernel may choose the target port as the source port, so that the socket connects to itself.
TEST(Ports, ASocketIsNotConnectedToItself) {
  auto sockets = make_port_sockets();
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof own;
  ASSERT_EQ(::bind(sockets->four.get(), reinterpret_cast<sockaddr*>(&own), sizeof own), 0);
  ::getsockname(sockets->four.get(), reinterpret_cast<sockaddr*>(&own), &size);
  sockets->six.reset();
  const auto dialled = dial(std::move(*sockets), ntohs(own.sin_port), -1);
  ASSERT_FALSE(dialled.ok());
  EXPECT_EQ(dialled.error().os_errno, ECONNREFUSED);
}

TEST(Ports, EndsWithItsReader) {
  const Listener listener;
  auto socket = dial_here(listener.port);
  ASSERT_TRUE(socket.ok()) << socket.error().message;
  const Fd server(::accept(listener.socket.get(), nullptr, nullptr));
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  const Fd far(ends[1]);
  Fd own(ends[0]);
  auto carried = std::async(std::launch::async, [&] { return carry_stream(socket->get(), far.get(), -1); });
  own.reset();
  ASSERT_EQ(::send(server.get(), "x", 1, MSG_NOSIGNAL), 1);
  ::shutdown(server.get(), SHUT_WR);
  const auto result = carried.get();
  EXPECT_FALSE(result.ok()) << "unread bytes are not delivered";
}

}  // namespace
}  // namespace isogate
