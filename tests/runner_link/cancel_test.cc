// Cancelled calls, and runners that ignore them.
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <thread>

#include "calls.h"
#include "peer.h"
#include "tests/eventually.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

isogate_runner_result killed() {
  auto said = success();
  said.term_signal = 9;
  said.exec_flags = ISOGATE_RESULT_KILLED;
  return said;
}

TEST(RunnerLinkCancel, ARunningExecIsKilledAndItsResultAwaited) {
  Peer peer;
  auto link = peer.link();
  const Exec exec({"sleep"});
  auto done = exec.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  exec.ask.cancel();
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_CANCEL).head.stream, 1u);
  EXPECT_TRUE(peer.is_silent(20));  // sent once
  peer.send(result_frame(1, killed()));
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK);
  EXPECT_EQ(outcome.exec.flags, ISOGATE_RESULT_KILLED);
  EXPECT_EQ(outcome.exec.term_signal, 9);
  EXPECT_TRUE(link->alive());
}

TEST(RunnerLinkCancel, KilledIsNotBelievedOfACallThatWasNot) {
  Peer peer;
  auto link = peer.link();
  const Exec exec({"sleep"});
  auto done = exec.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  peer.send(result_frame(1, killed()));
  EXPECT_EQ(done.get().exec.flags, 0u);
}

TEST(RunnerLinkCancel, SilenceAfterItEndsTheConnection) {
  Peer peer;
  auto link = peer.link(kAble, 100);
  const Ask ask;
  const Exec exec({"sleep"}), other({"sleep"});
  auto done = exec.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  auto beside = other.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  const auto start = std::chrono::steady_clock::now();
  exec.ask.cancel();
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_LOST);
  EXPECT_NE(outcome.message.find("cancelled"), std::string::npos) << outcome.message;
  EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms);
  EXPECT_LT(std::chrono::steady_clock::now() - start, 3s);
  EXPECT_EQ(beside.get().status, ISOGATE_LOST);
}

TEST(RunnerLinkCancel, AStreamThatTakesNothingIsDead) {
  Peer peer;
  auto link = peer.link(kAble, 5000);
  Exec large({"true"});
  large.user = std::string(3 << 20, 'x');
  const Exec waiting({"true"}), cancelled({"true"});
  auto stuck = large.start(*link);
  int arrived = 0;
  EXPECT_TRUE(
      test::eventually(20, [&] { return ::ioctl(peer.fd(), FIONREAD, &arrived) == 0 && arrived > 0; }));
  auto behind = waiting.start(*link), given_up = cancelled.start(*link);
  std::this_thread::sleep_for(50ms);
  cancelled.ask.cancel();
  EXPECT_EQ(given_up.wait_for(4s), std::future_status::ready);
  EXPECT_EQ(given_up.get().status, ISOGATE_CANCELLED);
  EXPECT_EQ(stuck.get().status, ISOGATE_UNAVAILABLE);
  EXPECT_EQ(behind.get().status, ISOGATE_UNAVAILABLE);
  EXPECT_NE(link->why().find("takes no more"), std::string::npos) << link->why();
}

// Both sockets are full: the client reads from the runner although the runner reads nothing.
TEST(RunnerLinkCancel, AWriterThatWaitsForRoomGoesOnReading) {
  Peer peer;
  auto link = peer.link(0);
  Pipe out;
  Exec first({"yes"}), large({"true"});
  first.out = out.writer;
  large.user = std::string(3 << 20, 'x');
  auto reading = std::async(std::launch::async, [&] { return out.read(250 << 10).size(); });
  auto one = first.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  auto two = large.start(*link);
  std::this_thread::sleep_for(50ms);
  const std::string piece(50 << 10, 'y');
  for (int i = 0; i < 5; ++i) peer.send(channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 0, piece));
  EXPECT_EQ(reading.get(), 250u << 10);
  peer.expect(ISOGATE_RUNNER_EXEC);
  peer.send(result_frame(1, success()) + result_frame(2, success()));
  EXPECT_EQ(one.get().status, ISOGATE_OK);
  EXPECT_EQ(two.get().status, ISOGATE_OK);
}

TEST(RunnerLinkCancel, UnreadOutputIsDropped) {
  for (const bool ended_before : {false, true}) {
    Peer peer;
    auto link = peer.link(0);
    Pipe out;
    Exec exec({"yes"});
    exec.out = out.writer;
    auto done = exec.start(*link);
    peer.expect(ISOGATE_RUNNER_EXEC);
    const std::string piece(50 << 10, 'y');
    for (int i = 0; i < 5; ++i) peer.send(channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 0, piece));
    if (ended_before) peer.send(result_frame(1, success()));
    EXPECT_EQ(done.wait_for(100ms), std::future_status::timeout);
    exec.ask.cancel();
    if (!ended_before) {
      peer.expect(ISOGATE_RUNNER_CANCEL);
      peer.expect(ISOGATE_RUNNER_CREDIT);  // it continues, so that the runner can finish
      peer.send(result_frame(1, killed()));
    }
    const Outcome outcome = done.get();
    EXPECT_EQ(outcome.status, ISOGATE_OK);
    EXPECT_EQ(outcome.exec.flags, ISOGATE_RESULT_KILLED);
  }
}

}  // namespace
}  // namespace isogate::testing
