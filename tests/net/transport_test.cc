// Connections that must fail, on this machine only.
#include "lib/net/transport.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cstring>
#include <vector>

#include "lib/net/name_lookup.h"

namespace isogate::net {
namespace {

// Queues connections, and is silent.
class Listener {
 public:
  explicit Listener(int backlog = 8) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    auto* address = reinterpret_cast<sockaddr*>(&at);
    EXPECT_EQ(::bind(socket_.get(), address, size), 0);
    EXPECT_EQ(::listen(socket_.get(), backlog), 0);
    EXPECT_EQ(::getsockname(socket_.get(), address, &size), 0);
    port_ = ntohs(at.sin_port);
    std::memcpy(&address_.to, &at, sizeof at);
    address_.size = sizeof at;
  }
  [[nodiscard]] Target target() const {
    return {.name = "the server", .address = "here", .unix_path = "", .host = "127.0.0.1", .port = port_};
  }
  [[nodiscard]] const NameAddress& address() const { return address_; }
  [[nodiscard]] uint16_t port() const { return port_; }

 private:
  const Fd socket_;
  uint16_t port_ = 0;
  NameAddress address_;
};

std::string refused(const Target& target, isogate_status status) {
  try {
    (void)Transport::connect(target, Budget(std::chrono::milliseconds(200)));
  } catch (const NetError& error) {
    EXPECT_EQ(error.status(), status) << error.what();
    EXPECT_FALSE(error.maybe_done());
    return error.what();
  }
  return "it is connected";
}

TEST(Connections, AnAuthorityThatIsEmptyIsNotTheSystems) {
  const Listener listener;
  Target target = listener.target();
  for (const char* pem : {"", "no PEM", "-----BEGIN CERTIFICATE-----\nnonsense"}) {
    target.tls = Tls{.authority = pem};
    EXPECT_NE(refused(target, ISOGATE_INVALID_ARGUMENT).find("the server at here: its certificate authority"),
              std::string::npos);
    target.tls->verify = false;
    refused(target, ISOGATE_INVALID_ARGUMENT);
  }
}

TEST(Connections, ACertificateNeedsItsKey) {
  const Listener listener;
  Target target = listener.target();
  target.tls = Tls{.certificate = "a certificate"};
  refused(target, ISOGATE_INVALID_ARGUMENT);
  target.tls = Tls{.key = "a key"};
  refused(target, ISOGATE_INVALID_ARGUMENT);
}

TEST(Connections, ASilentPeerBlocksNobody) {
  const Listener listener;
  Target tls = listener.target(), through = listener.target();
  tls.tls = Tls{};
  EXPECT_NE(refused(tls, ISOGATE_UNAVAILABLE).find("the handshake was not done in time"), std::string::npos);
  through.proxy = Proxy{through.host, through.port, ""};
  EXPECT_NE(refused(through, ISOGATE_UNAVAILABLE).find("through proxy 127.0.0.1:"), std::string::npos);
}

TEST(Connections, AnAddressThatDoesNotAnswerLeavesTimeForTheNext) {
  const Listener full(0), live;
  const auto within = [](int ms) { return Budget(std::chrono::milliseconds(ms)); };
  std::vector<Fd> queued;
  try {
    for (;;) queued.push_back(connect_to_one({full.address()}, "cannot fill", within(200)));
  } catch (const NetError&) {  // its queue is full
  }
  const Fd connected = connect_to_one({full.address(), live.address()}, "cannot connect", within(5'000));
  sockaddr_in peer{};
  socklen_t size = sizeof peer;
  ASSERT_EQ(::getpeername(connected.get(), reinterpret_cast<sockaddr*>(&peer), &size), 0);
  EXPECT_EQ(ntohs(peer.sin_port), live.port());
}

// A full window counts as silence for the kernel's limit.
TEST(Connections, OnlyAServerThatReadsSoonIsLostWhenItDoesNot) {
  const Listener listener;
  for (const bool late : {false, true}) {
    Target target = listener.target();
    target.reads_late = late;
    const auto transport = Transport::connect(target, Budget(std::chrono::seconds(5)));
    int limit_ms = -1;
    socklen_t size = sizeof limit_ms;
    ASSERT_EQ(::getsockopt(transport->fd(), IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, &size), 0);
    EXPECT_EQ(limit_ms, late ? 0 : 30'000);
  }
}

TEST(Connections, ARefusedConnectionIsUnavailable) {
  Target target = Listener().target();
  EXPECT_EQ(refused(target, ISOGATE_UNAVAILABLE), "cannot reach the server at here: Connection refused");
  target.unix_path = "/nonexistent/socket";
  EXPECT_NE(refused(target, ISOGATE_UNAVAILABLE).find("No such file"), std::string::npos);
  target.unix_path = "/" + std::string(200, 'x');
  EXPECT_NE(refused(target, ISOGATE_UNAVAILABLE).find("too long"), std::string::npos);
}

}  // namespace
}  // namespace isogate::net
