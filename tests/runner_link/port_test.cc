// Connections to ports through a runner, with its descriptors and in frames; here the sandbox's network is
// that of the test.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "agent_process.h"
#include "calls.h"
#include "lib/fd.h"

namespace isogate::testing {
namespace {

// Listens on a free port of 127.0.0.1, and accepts one connection at a time.
struct Listener {
  Listener() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(socket.get(), 16), 0);
    ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port = ntohs(address.sin_port);
  }
  Fd accept() const { return Fd(::accept(socket.get(), nullptr, nullptr)); }
  Fd socket;
  uint16_t port = 0;
};

std::string read_to_end(int fd) {
  std::string all;
  char piece[65536];
  for (ssize_t n; (n = ::read(fd, piece, sizeof piece)) > 0;) all.append(piece, static_cast<size_t>(n));
  return all;
}

void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
}

class RunnerLinkPorts : public ::testing::TestWithParam<bool> {
 protected:
  // The client has its other end. The runner's end is closed after the call, as a backend host does.
  std::future<Outcome> connect(uint32_t port) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    own = Fd(ends[0]);
    ready = Fd(::eventfd(0, EFD_CLOEXEC));
    return later([this, port, far = ends[1]](Outcome&) {
      const Fd closed_at_last(far);
      const isogate_connect_request request{sizeof request, 0, port, far, ready.get(), 0};
      agent.link().connect_to_port(ask.call, request);
    });
  }
  bool is_ready(int within_ms) const {
    pollfd look{ready.get(), POLLIN, 0};
    return ::poll(&look, 1, within_ms) > 0;
  }

  Fd own, ready;
  Ask ask;
  AgentProcess agent{GetParam()};
  Listener listener;
};

INSTANTIATE_TEST_SUITE_P(Ways, RunnerLinkPorts, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Descriptors" : "Frames"; });

TEST_P(RunnerLinkPorts, CarryBytesBothWaysAndEachEnd) {
  auto done = connect(listener.port);
  const Fd server = listener.accept();
  ASSERT_TRUE(is_ready(10'000));
  std::string bytes(5 << 20, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 7 >> 4);
  std::thread sender([&] {
    write_all(own.get(), bytes);
    ::shutdown(own.get(), SHUT_WR);
  });
  EXPECT_TRUE(read_to_end(server.get()) == bytes);
  sender.join();
  std::thread answerer([&] {
    write_all(server.get(), bytes);
    ::shutdown(server.get(), SHUT_WR);
  });
  EXPECT_TRUE(read_to_end(own.get()) == bytes) << "after the end of the other direction";
  answerer.join();
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
}

TEST_P(RunnerLinkPorts, TheEndOfTheAnswerComesBeforeThatOfTheRequest) {
  auto done = connect(listener.port);
  const Fd server = listener.accept();
  write_all(server.get(), "early");
  ::shutdown(server.get(), SHUT_WR);
  EXPECT_EQ(read_to_end(own.get()), "early");
  write_all(own.get(), "late");
  ::shutdown(own.get(), SHUT_WR);
  EXPECT_EQ(read_to_end(server.get()), "late");
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

TEST_P(RunnerLinkPorts, APortWithoutAListenerIsNotReady) {
  listener.socket.reset();
  const Outcome outcome = connect(listener.port).get();
  EXPECT_EQ(outcome.status, ISOGATE_NOT_FOUND) << outcome.message;
  EXPECT_FALSE(is_ready(0));
  EXPECT_EQ(connect(0).get().status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(connect(65536).get().status, ISOGATE_INVALID_ARGUMENT);
}

TEST_P(RunnerLinkPorts, ABreakIsNoEnd) {
  auto done = connect(listener.port);
  Fd server = listener.accept();
  ASSERT_TRUE(is_ready(10'000));
  const linger at_once{1, 0};
  ::setsockopt(server.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
  server.reset();
  EXPECT_EQ(done.get().status, ISOGATE_IO);
}

TEST_P(RunnerLinkPorts, ACancelClosesIt) {
  auto done = connect(listener.port);
  const Fd server = listener.accept();
  ASSERT_TRUE(is_ready(10'000));
  ask.cancel();
  EXPECT_EQ(done.get().status, ISOGATE_CANCELLED);
  EXPECT_EQ(read_to_end(server.get()), "");
}

// It neither buffers the bytes nor loses them, and other calls continue meanwhile.
TEST_P(RunnerLinkPorts, ASlowReaderDelaysOnlyItsSender) {
  auto done = connect(listener.port);
  const Fd server = listener.accept();
  const std::string bytes(32 << 20, 'x');
  const size_t before = resident_bytes();
  std::thread sender([&] {
    write_all(server.get(), bytes);
    ::shutdown(server.get(), SHUT_WR);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_EQ(Exec({"true"}).run(agent.link()).exec.exit_code, 0);
  EXPECT_LT(resident_bytes(), before + bytes.size() / 2);
  EXPECT_EQ(read_to_end(own.get()).size(), bytes.size());
  sender.join();
  ::shutdown(own.get(), SHUT_WR);
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

}  // namespace
}  // namespace isogate::testing
