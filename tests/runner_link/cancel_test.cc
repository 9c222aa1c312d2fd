// Cancelled calls, and runners that ignore them.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>
#include <vector>

#include "calls.h"
#include "peer.h"
#include "sdk/runner_link/link.h"
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
  EXPECT_LT(std::chrono::steady_clock::now() - start, 9s);
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

// Takes a few bytes now and then, as long as it exists.
class SlowReader {
 public:
  SlowReader(const Peer& peer, std::chrono::milliseconds pause)
      : thread_([this, fd = peer.fd(), pause] {
          while (!over_) {
            char bytes[1000];
            ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
            std::this_thread::sleep_for(pause);
          }
        }) {}
  ~SlowReader() {
    over_ = true;
    thread_.join();
  }
  SlowReader(const SlowReader&) = delete;
  SlowReader& operator=(const SlowReader&) = delete;

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;
};

TEST(RunnerLinkCancel, ARunnerThatReadsSlowlyHoldsUpNoCancelledCall) {
  for (const bool has_begun : {false, true}) {
    Peer peer;
    peer.narrow();
    auto link = peer.link(0, 2000);
    Pipe in;
    Exec exec({"cat"});
    exec.in = in.reader;
    if (!has_begun) exec.user = std::string(300000, 'x');
    auto done = exec.start(*link);
    if (has_begun) {
      peer.expect(ISOGATE_RUNNER_EXEC);
      in.write(std::string(60000, 'x'));
    }
    const int goes_by = has_begun ? in.reader : peer.fd();
    int size = 0;
    EXPECT_TRUE(test::eventually(20, [&] {
      return ::ioctl(goes_by, FIONREAD, &size) == 0 && (size == 0) == has_begun;
    })) << "a part of the frame has gone";
    const SlowReader slow(peer, 100ms);
    exec.ask.cancel();
    EXPECT_EQ(done.wait_for(20s), std::future_status::ready);
    EXPECT_EQ(done.get().status, has_begun ? ISOGATE_LOST : ISOGATE_UNAVAILABLE);
    EXPECT_NE(link->why().find("too slowly"), std::string::npos) << link->why();
  }
}

TEST(RunnerLinkCancel, ARunnerThatReadsTooSlowlyIsLost) {
  Peer peer;
  peer.narrow();
  auto link = peer.link(0, 6000);  // more than this process may stand still, which reads nothing
  Exec large({"true"});
  large.user = std::string(60000, 'x');
  auto stuck = large.start(*link);
  const SlowReader slow(peer, 200ms);
  EXPECT_EQ(stuck.wait_for(30s), std::future_status::ready);
  EXPECT_EQ(stuck.get().status, ISOGATE_UNAVAILABLE);
  EXPECT_NE(link->why().find("too slowly"), std::string::npos) << link->why();
}

// A stream that reconnects, and keeps of what is to be sent short writes, and so many bytes beside.
class Away final : public sdk::RunnerStream {
 public:
  explicit Away(std::unique_ptr<sdk::RunnerStream> below) : below_(std::move(below)) {}
  ~Away() override { ::close(full_); }
  Away(const Away&) = delete;
  Away& operator=(const Away&) = delete;

  void leave(size_t takes = 0) {
    takes_ = takes;
    ::eventfd_write(full_, UINT64_MAX - 1);
    away_ = true;
  }
  void come_back() {
    eventfd_t count = 0;
    away_ = false;
    ::eventfd_read(full_, &count);
  }
  [[nodiscard]] int fd() const override { return below_->fd(); }
  [[nodiscard]] int room_fd() const override { return full_; }
  ssize_t read_some(char* to, size_t size) override { return below_->read_some(to, size); }
  ssize_t write_some(const char* from, size_t size) override {
    const size_t taken = !away_ || size <= 1024 ? size : std::min<size_t>(size, takes_.exchange(0));
    if (taken > 0) return below_->write_some(from, taken);
    refused_ = true;
    errno = EAGAIN;
    return -1;
  }
  void shutdown() override { below_->shutdown(); }
  [[nodiscard]] bool is_away() const override { return away_; }
  [[nodiscard]] bool has_refused() const { return refused_; }

 private:
  const std::unique_ptr<sdk::RunnerStream> below_;
  const int full_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<size_t> takes_{0};
  std::atomic<bool> away_{false}, refused_{false};
};

struct Leaving {  // a link whose stream can be away
  explicit Leaving(sdk::link::Patience patience) {
    peer.send(frame(ISOGATE_RUNNER_HELLO, 0, raw(hello(0))));
    auto stream = std::make_unique<Away>(peer.client_end(false));
    away = stream.get();
    const Ask ask;
    link = sdk::link::connect(std::move(stream), 5s, ask.call, patience);
    EXPECT_EQ(peer.hear().head.type, ISOGATE_RUNNER_HELLO);
  }
  [[nodiscard]] bool has_refused() const {
    return test::eventually(20, [this] { return away->has_refused(); });
  }

  Peer peer;
  Away* away = nullptr;  // the link's
  std::shared_ptr<sdk::RunnerLink> link;
};

TEST(RunnerLinkCancel, InputThatWaitsForAStreamThatIsAwayIsGivenUp) {
  Leaving leaving({10s, 10s, 100ms});
  Pipe in;
  Exec exec({"cat"});
  exec.in = in.reader;
  auto done = exec.start(*leaving.link);
  leaving.peer.expect(ISOGATE_RUNNER_EXEC);
  leaving.away->leave();
  in.write(std::string(2000, 'x'));
  EXPECT_TRUE(leaving.has_refused());
  exec.ask.cancel();
  EXPECT_EQ(done.wait_for(5s), std::future_status::ready);
  leaving.away->come_back();
  EXPECT_EQ(leaving.peer.expect(ISOGATE_RUNNER_CANCEL).head.stream, 1u)
      << "nothing of the input went before it";
  leaving.peer.send(result_frame(1, killed()));
  EXPECT_EQ(done.get().status, ISOGATE_LOST);
  EXPECT_TRUE(leaving.link->alive());
}

// Together their frames are no longer short.
TEST(RunnerLinkCancel, ManyCallsCancelledWhileTheStreamIsAwayEndNoOther) {
  constexpr size_t kOthers = 100;
  Leaving leaving({100ms, 10s, 100ms});
  Pipe in;
  Exec writer({"cat"});
  writer.in = in.reader;
  auto writing = writer.start(*leaving.link);
  leaving.peer.expect(ISOGATE_RUNNER_EXEC);
  std::vector<std::unique_ptr<Exec>> others;
  std::vector<std::future<Outcome>> outcomes;
  for (size_t i = 0; i < kOthers; ++i) {
    others.push_back(std::make_unique<Exec>(std::vector<std::string>{"sleep"}));
    outcomes.push_back(others.back()->start(*leaving.link));
    leaving.peer.expect(ISOGATE_RUNNER_EXEC);
  }
  leaving.away->leave();
  in.write(std::string(2000, 'x'));
  EXPECT_TRUE(leaving.has_refused());
  for (const auto& other : others) other->ask.cancel();
  for (auto& outcome : outcomes) EXPECT_EQ(outcome.get().status, ISOGATE_LOST);
  writer.ask.cancel();
  EXPECT_EQ(writing.wait_for(10s), std::future_status::ready) << "it waits for the stream";
  EXPECT_TRUE(leaving.link->alive()) << leaving.link->why();
  leaving.away->come_back();
  EXPECT_EQ(writing.get().status, ISOGATE_LOST);
  for (size_t i = 0; i < kOthers + 1; ++i) leaving.peer.expect(ISOGATE_RUNNER_CANCEL);
}

TEST(RunnerLinkCancel, ACallOfWhichAPartIsSentWaitsForAStreamThatIsAway) {
  Leaving leaving({2s, 1s, 2s});
  Exec large({"true"});
  large.user = std::string(60000, 'x');
  leaving.away->leave(5000);
  auto done = large.start(*leaving.link);
  EXPECT_TRUE(leaving.has_refused());
  large.ask.cancel();
  EXPECT_EQ(done.wait_for(3s), std::future_status::timeout);
  EXPECT_TRUE(leaving.link->alive()) << leaving.link->why();
  leaving.away->come_back();
  leaving.peer.expect(ISOGATE_RUNNER_EXEC);
  leaving.peer.expect(ISOGATE_RUNNER_CANCEL);
  leaving.peer.send(result_frame(1, killed()));
  EXPECT_EQ(done.get().exec.flags, ISOGATE_RESULT_KILLED);
  EXPECT_TRUE(leaving.link->alive());
}

// Like TLS: of what it refuses, a part may be on its way, and anything else breaks it.
class Begins final : public sdk::RunnerStream {
 public:
  explicit Begins(std::unique_ptr<sdk::RunnerStream> below) : below_(std::move(below)) {}
  ~Begins() override { ::close(full_); }
  Begins(const Begins&) = delete;
  Begins& operator=(const Begins&) = delete;

  void refuse() {
    ::eventfd_write(full_, UINT64_MAX - 1);
    refuses_ = true;
  }
  void take() {
    eventfd_t count = 0;
    refuses_ = false;
    ::eventfd_read(full_, &count);
  }
  [[nodiscard]] bool has_refused() const { return refused_; }
  [[nodiscard]] int fd() const override { return below_->fd(); }
  [[nodiscard]] int room_fd() const override { return full_; }
  [[nodiscard]] bool must_repeat() const override { return true; }
  ssize_t read_some(char* to, size_t size) override { return below_->read_some(to, size); }
  ssize_t write_some(const char* from, size_t size) override {
    if (!std::string_view(from, size).starts_with(begun_)) return errno = ECONNRESET, -1;
    if (!refuses_) return begun_.clear(), below_->write_some(from, size);
    begun_.assign(from, size);
    refused_ = true;
    return errno = EAGAIN, -1;
  }
  void shutdown() override { below_->shutdown(); }

 private:
  const std::unique_ptr<sdk::RunnerStream> below_;
  const int full_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::string begun_;  // the writer's
  std::atomic<bool> refuses_{false}, refused_{false};
};

TEST(RunnerLinkCancel, WhatAStreamHasBegunToSendGoesOutBeforeAnythingElse) {
  Peer peer;
  peer.send(frame(ISOGATE_RUNNER_HELLO, 0, raw(hello(0))));
  auto stream = std::make_unique<Begins>(peer.client_end(false));
  Begins& begins = *stream;
  const Ask ask;
  const auto link = sdk::link::connect(std::move(stream), 5s, ask.call, {10s, 10s, 10s});
  EXPECT_EQ(peer.hear().head.type, ISOGATE_RUNNER_HELLO);
  Pipe in;
  Exec exec({"cat"});
  exec.in = in.reader;
  auto done = exec.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  begins.refuse();
  in.write(std::string(2000, 'x'));
  EXPECT_TRUE(test::eventually(20, [&] { return begins.has_refused(); }));
  exec.ask.cancel();
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(link->alive()) << link->why();
  begins.take();
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_DATA).bytes(), std::string(2000, 'x'));
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_CANCEL).head.stream, 1u);
  peer.send(result_frame(1, killed()));
  EXPECT_EQ(done.get().exec.flags, ISOGATE_RESULT_KILLED);
  EXPECT_TRUE(link->alive()) << link->why();
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
    Begun begun("yes");
    const std::string piece(50 << 10, 'y');
    for (int i = 0; i < 5; ++i) begun.peer.send(channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 0, piece));
    if (ended_before) begun.peer.send(result_frame(1, success()));
    EXPECT_EQ(begun.done.wait_for(100ms), std::future_status::timeout);
    begun.exec.ask.cancel();
    if (!ended_before) {
      begun.peer.expect(ISOGATE_RUNNER_CANCEL);
      begun.peer.expect(ISOGATE_RUNNER_CREDIT);  // it continues, so that the runner can finish
      begun.peer.send(result_frame(1, killed()));
    }
    const Outcome outcome = begun.done.get();
    EXPECT_EQ(outcome.status, ISOGATE_OK);
    EXPECT_EQ(outcome.exec.flags, ISOGATE_RESULT_KILLED);
  }
}

}  // namespace
}  // namespace isogate::testing
