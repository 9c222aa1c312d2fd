// Programs' standard streams over hijacked connections of a real Engine, and their demultiplexer.
#include "plugins/docker/client/engine_stream.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <thread>

#include "tests/docker/engines.h"

namespace isogate::docker {
namespace {

std::string noise(size_t size) {
  std::string bytes(size, '\0');
  uint64_t state = 88172645463325252ull;
  for (char& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state);
  }
  return bytes;
}

std::string frame(char stream, const std::string& bytes) {
  const size_t n = bytes.size();
  return std::string{stream,
                     0,
                     0,
                     0,
                     static_cast<char>(n >> 24),
                     static_cast<char>(n >> 16),
                     static_cast<char>(n >> 8),
                     static_cast<char>(n)} +
         bytes;
}

// Feeds it in pieces of `piece` bytes, with room for `room`.
std::string demultiplex(Demultiplexer& demultiplexer, const std::string& bytes, size_t piece, size_t room) {
  std::string all, out(room, '\0');
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min(piece, bytes.size() - at);
    const auto step = demultiplexer.feed(bytes.data() + at, size, out.data(), room);
    all.append(out, 0, step.given);
    at += step.taken;
    if (step.taken == 0 && step.given == 0) break;
  }
  return all;
}

TEST(Demultiplexer, GivesStdoutAndDropsStderr) {
  const std::string loud(6000, 'e');
  const std::string bytes = frame(1, "one ") + frame(2, "oops ") + frame(1, "") + frame(0, "zero ") +
                            frame(2, loud) + frame(3, "engine") + frame(1, "two");
  for (const size_t piece : {1u, 7u, 8u, 9u, 100000u}) {
    for (const size_t room : {1u, 3u, 1000u}) {
      Demultiplexer demultiplexer;
      EXPECT_EQ(demultiplex(demultiplexer, bytes, piece, room), "one zero two");
      EXPECT_TRUE(demultiplexer.between_frames());
      EXPECT_FALSE(demultiplexer.broken());
    }
  }
}

TEST(Demultiplexer, SeesWhatAreNoFrames) {
  for (const std::string& bytes :
       {std::string("HTTP/1.1"), frame(4, "x"), std::string("\1\1\0\0\0\0\0\1x", 9)}) {
    Demultiplexer demultiplexer;
    EXPECT_EQ(demultiplex(demultiplexer, frame(1, "ok") + bytes, 100, 100), "ok");
    EXPECT_TRUE(demultiplexer.broken());
  }
  Demultiplexer cut;
  EXPECT_EQ(demultiplex(cut, std::string("\1\0\0\0\xff\xff\xff\xff", 8) + "4 GiB?", 100, 100), "4 GiB?");
  EXPECT_FALSE(cut.broken());
  EXPECT_FALSE(cut.between_frames());
}

// A stream whose other end the test has.
struct Pair {
  explicit Pair(const std::string& early = {}) {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    other = Fd(ends[1]);
    stream = std::make_unique<EngineStream>(net::Transport::adopt(Fd(ends[0])), early);
  }
  void say(const std::string& bytes) const {
    EXPECT_EQ(::send(other.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  std::string read(size_t size = 100) const {
    std::string bytes(size, '\0');
    errno = 0;
    const ssize_t n = stream->read_some(bytes.data(), size);
    return n < 0 ? "" : bytes.substr(0, static_cast<size_t>(n));
  }
  Fd other;
  std::unique_ptr<EngineStream> stream;
};

TEST(EngineStream, LosesNothingThatCameWithTheAnswersHead) {
  const std::string first = frame(1, "early ");
  Pair pair(first + frame(1, "late").substr(0, 3));
  EXPECT_TRUE(pair.stream->has_buffered());
  pair.say(frame(1, "late").substr(3));
  EXPECT_EQ(pair.read(), "early ");
  EXPECT_EQ(pair.read(), "late");
  EXPECT_EQ(pair.read(), "");
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(pair.stream->has_buffered());
}

// Otherwise a caller that polls would wait for bytes that have arrived, or spin for bytes that have not.
TEST(EngineStream, HasBufferedJustWhatItWouldAnswerWith) {
  Pair pair;
  pair.say(frame(1, "abc") + frame(2, "aside"));
  EXPECT_EQ(pair.read(2), "ab");
  EXPECT_TRUE(pair.stream->has_buffered());
  EXPECT_EQ(pair.read(1), "c");
  EXPECT_EQ(pair.read(), "");
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_FALSE(pair.stream->has_buffered());
}

TEST(EngineStream, AnEndInAFrameIsNoEnd) {
  Pair pair;
  pair.say(frame(1, "whole") + frame(1, "half").substr(0, 10));
  pair.other.reset();
  EXPECT_EQ(pair.read(5), "whole");
  EXPECT_EQ(pair.read(), "ha");
  EXPECT_EQ(pair.read(), "");
  EXPECT_EQ(errno, ECONNRESET);
  Pair nonsense;
  nonsense.say("HTTP/1.1 200 OK\r\n");
  EXPECT_EQ(nonsense.read(), "");
  EXPECT_EQ(errno, EPROTO);
}

TEST_F(SharedEngine, ExecsCarryAllBytesBothWays) {
  const std::string id = run();
  const std::string bytes = noise(size_t{32} << 20);
  const std::string out = exec(id, {"head", "-c", std::to_string(bytes.size())}, bytes);
  EXPECT_TRUE(out == bytes) << out.size();
}

TEST_F(SharedEngine, TheStreamsOfAnExecStayApart) {
  EXPECT_EQ(exec(run(), {"sh", "-c", "head -c 5; echo error >&2; echo after"}, "12345"), "12345after\n");
}

TEST_F(SharedEngine, AStreamCanBeShutDownByAnotherThread) {
  const std::string id = run();
  const Json body{{"Cmd", {"cat"}}, {"AttachStdin", true}, {"AttachStdout", true}, {"AttachStderr", true}};
  const auto stream = engine_->exec_start(engine_->exec_create(id, body, usual()), usual());
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(100));
    stream->shutdown();
  });
  EXPECT_EQ(read_all(*stream, seconds(5)), "");
  other.join();
}

// The second start may also be answered with a stream, in which the Engine complains as if it were the
// program.
TEST_F(SharedEngine, AnExecIsStartedOnce) {
  const std::string id = run();
  const std::string exec_id =
      engine_->exec_create(id, Json{{"Cmd", {"echo", "once"}}, {"AttachStdout", true}}, usual());
  EXPECT_EQ(read_all(*engine_->exec_start(exec_id, usual())), "once\n");
  failure_of([&] { EXPECT_NE(read_all(*engine_->exec_start(exec_id, usual())), "once\n"); });
  EXPECT_EQ(failure_of([&] { engine_->exec_start("0123456789ab", usual()); }).status, ISOGATE_NOT_FOUND);
}

}  // namespace
}  // namespace isogate::docker
