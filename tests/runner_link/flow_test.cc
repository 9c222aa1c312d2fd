// Bytes in frames: exact, bounded, and no stream delays another.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>

#include "calls.h"
#include "peer.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

// Sends within the credit that it is granted.
class Sender {
 public:
  Sender(Peer& peer, uint32_t stream) : peer_(peer), stream_(stream) {}
  void send(std::string_view bytes) {
    while (credit_ < bytes.size())
      credit_ += peer_.expect(ISOGATE_RUNNER_CREDIT).as<isogate_runner_channel>().bytes;
    credit_ -= bytes.size();
    peer_.send(channel_frame(ISOGATE_RUNNER_DATA, stream_, ISOGATE_RUNNER_STDOUT, 0, bytes));
  }
  // All the credit that arrives while it sends nothing more: until more than `least` has, or 20 s without
  // any, and then until silence.
  uint64_t credit(uint64_t least) {
    while (!peer_.is_silent(credit_ > least ? 300 : 20'000))
      credit_ += peer_.expect(ISOGATE_RUNNER_CREDIT).as<isogate_runner_channel>().bytes;
    return credit_;
  }

 private:
  Peer& peer_;
  const uint32_t stream_;
  uint64_t credit_ = ISOGATE_RUNNER_WINDOW;
};

std::string pattern(size_t size, size_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>((i * 31 + seed) >> 3);
  return bytes;
}

TEST(RunnerLinkFlow, SixtyFourMebibytesComeExactInLittleMemory) {
  Begun begun("cat");
  const size_t before = resident_bytes();
  size_t most = before;
  constexpr size_t kPieces = 1024, kPiece = 64000;
  auto reading = std::async(std::launch::async, [&] {
    size_t good = 0;
    for (size_t i = 0; i < kPieces; ++i) good += begun.out.read(kPiece) == pattern(kPiece, i) ? 1 : 0;
    return good;
  });
  Sender sender(begun.peer, 1);
  for (size_t i = 0; i < kPieces; ++i) {
    sender.send(pattern(kPiece, i));
    if (i % 64 == 0) most = std::max(most, resident_bytes());
  }
  begun.end();
  EXPECT_EQ(reading.get(), kPieces);
#ifndef __SANITIZE_ADDRESS__
#ifndef __SANITIZE_THREAD__
  EXPECT_LT(most - before, 4u << 20);
#endif
#endif
}

TEST(RunnerLinkFlow, AReaderThatKeepsUpIsGivenAMebibyteAndNoMore) {
  Begun begun("cat");
  constexpr size_t kPiece = 32 << 10;
  Sender sender(begun.peer, 1);
  for (int i = 0; i < 200; ++i) {
    sender.send(std::string(kPiece, 'x'));
    EXPECT_EQ(begun.out.read(kPiece).size(), kPiece);
  }
  constexpr uint64_t kLeast = ISOGATE_RUNNER_WIDEST - ISOGATE_RUNNER_WINDOW / 4;
  const uint64_t given = sender.credit(kLeast);
  EXPECT_LE(given, ISOGATE_RUNNER_WIDEST);
  EXPECT_GT(given, kLeast);
  begun.end();
}

TEST(RunnerLinkFlow, ASlowReaderDelaysNoOtherStream) {
  Peer peer;
  auto link = peer.link(0);
  Pipe slow_out, out;
  Exec slow({"yes"}), quick({"true"});
  slow.out = slow_out.writer;
  quick.out = out.writer;
  auto stuck = slow.start(*link);  // the first to wait, so it reads
  peer.expect(ISOGATE_RUNNER_EXEC);
  Sender(peer, 1).send(std::string(60000, 'y')),
      peer.send(channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 0, std::string(60000, 'z')));
  for (uint32_t stream = 2; stream < 40; ++stream) {
    auto done = quick.start(*link);
    peer.expect(ISOGATE_RUNNER_EXEC);
    peer.send(channel_frame(ISOGATE_RUNNER_DATA, stream, 1, 0, "x") + result_frame(stream, success()));
    EXPECT_EQ(done.get().status, ISOGATE_OK);
  }
  EXPECT_TRUE(peer.is_silent(20));  // no credit for what nobody read
  peer.send(result_frame(1, success()));
  EXPECT_EQ(stuck.wait_for(50ms), std::future_status::timeout);
  EXPECT_EQ(slow_out.read(120000).size(), 120000u);
  EXPECT_EQ(stuck.get().status, ISOGATE_OK);
  EXPECT_EQ(out.read_all(), std::string(38, 'x'));
}

TEST(RunnerLinkFlow, OutputWithoutAReaderIsSwallowed) {
  struct sigaction old {
  }, fatal{};
  fatal.sa_handler = SIG_DFL;
  ASSERT_EQ(::sigaction(SIGPIPE, &fatal, &old), 0);
  Begun begun("yes");
  begun.out.close_reader();
  Sender sender(begun.peer, 1);
  for (int i = 0; i < 20; ++i) sender.send(std::string(60000, 'y'));
  begun.end();
  begun.peer.close();
  EXPECT_EQ(begun.exec.run(*begun.link).status, ISOGATE_UNAVAILABLE);
  ::sigaction(SIGPIPE, &old, nullptr);
}

TEST(RunnerLinkFlow, TheCallersDescriptorsStayBlocking) {
  Peer peer;
  auto link = peer.link(0);
  Pipe in, out;
  Exec exec({"cat"});
  exec.in = in.reader, exec.out = out.writer;
  auto done = exec.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  EXPECT_EQ(::fcntl(in.reader, F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(::fcntl(out.writer, F_GETFL) & O_NONBLOCK, 0);
  peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

TEST(RunnerLinkFlow, TwoThousandCallsWaitAtOnce) {
  Peer peer;
  auto link = peer.link();
  constexpr uint32_t kCalls = 2000;
  const Exec exec({"sleep"});
  std::vector<std::thread> threads;
  std::atomic<uint32_t> good = 0;
  for (uint32_t i = 0; i < kCalls; ++i) {
    threads.emplace_back([&] { good += exec.run(*link).status == ISOGATE_OK ? 1 : 0; });
    peer.expect(ISOGATE_RUNNER_EXEC);
  }
  for (uint32_t i = 1; i <= kCalls; ++i) peer.send(result_frame(kCalls + 1 - i, success()));
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(good, kCalls);
}

}  // namespace
}  // namespace isogate::testing
