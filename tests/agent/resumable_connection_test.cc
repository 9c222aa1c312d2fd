#include "runner/agent/link/resumable_connection.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <future>

namespace isogate::agent {
namespace {

// A stream, and the client's end of it.
std::pair<Stream, Fd> make_stream() {
  std::array<int, 2> ends{-1, -1};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()), 0);
  Stream stream{Fd(ends[0]), Fd(::fcntl(ends[0], F_DUPFD_CLOEXEC, 0)), Fd()};
  return {std::move(stream), Fd(ends[1])};
}

// What the client tells with its next stream that it has received is not kept any more.
TEST(ResumableConnection, ASenderThatWaitsForRoomGoesOnWithTheNextStream) {
  auto made = ResumableConnection::make({}, std::chrono::seconds(60));
  ASSERT_TRUE(made.ok());
  ResumableConnection& session = **made;
  auto first = make_stream();
  ASSERT_TRUE(session.attach(std::move(first.first), 0));
  const std::string piece(64 << 10, 'x');
  const size_t whole = sizeof(isogate_runner_frame) + piece.size();
  const auto send = [&] { return session.send(ISOGATE_RUNNER_DATA, 1, {}, piece); };
  for (size_t kept = 0; kept + whole <= ISOGATE_RUNNER_KEPT; kept += whole) ASSERT_TRUE(send());
  auto waiting = std::async(std::launch::async, send);
  EXPECT_EQ(waiting.wait_for(std::chrono::milliseconds(100)), std::future_status::timeout);
  auto second = make_stream();
  EXPECT_TRUE(session.attach(std::move(second.first), whole));
  EXPECT_EQ(waiting.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  session.stop();
  EXPECT_TRUE(waiting.get());
}

}  // namespace
}  // namespace isogate::agent
