// The exec WebSocket against a server that misbehaves.
#include <gtest/gtest.h>
#include <poll.h>

#include <nlohmann/json.hpp>

#include "lib/net/websocket.h"
#include "plugins/k8s/client/exec_channel.h"
#include "tests/k8s/fake_cluster.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

std::string on(int channel, const std::string& bytes) { return static_cast<char>(channel) + bytes; }
const std::string kSuccess = frame(on(3, R"({"metadata":{},"status":"Success"})"));
const std::string kFailure =
    frame(on(3, R"({"status":"Failure","reason":"NonZeroExitCode","details":{"causes":[{"reason":"ExitCode",)"
                R"("message":"7"}]}})"));
const std::string kClose = frame(std::string("\x03\xe8", 2), 8);

std::string accept_with(const Heard& heard, const std::string& protocol, const std::string& more = "") {
  return "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
         "Sec-WebSocket-Accept: " +
         net::websocket_accept(heard.header("Sec-WebSocket-Key")) +
         "\r\nSec-WebSocket-Protocol: " + protocol + "\r\n" + more + "\r\n";
}

using Talk = std::function<void(Peer&)>;
FakeCluster::Handler speaks(const std::string& protocol, const Talk& talk) {
  return [=](Peer& peer, const Heard& heard) {
    peer.write(accept_with(heard, protocol));
    talk(peer);
    return false;
  };
}
FakeCluster::Handler v4(const Talk& talk) { return speaks("v4.channel.k8s.io", talk); }
FakeCluster::Handler v5(const Talk& talk) { return speaks("v5.channel.k8s.io", talk); }

ExecRequest request() {
  ExecRequest one;
  one.name_space = "box";
  one.pod = "pod";
  one.container = "main";
  one.command = {"run", "a b&c"};
  return one;
}

struct Open {
  explicit Open(const FakeCluster& cluster, const ExecRequest& what = request())
      : api(cluster.access()), channel(ExecChannel::open(api, what, usual())) {}
  Api api;
  std::unique_ptr<ExecChannel> channel;
};

struct All {
  std::string bytes;
  int failure = 0;  // errno of its end
};
All read_all(ExecChannel& channel, int most_ms = 20'000) {
  All all;
  std::string buffer(1 << 20, '\0');
  for (;;) {
    const ssize_t n = channel.read_some(buffer.data(), buffer.size());
    if (n > 0) {
      all.bytes.append(buffer.data(), static_cast<size_t>(n));
    } else if (n == 0) {
      return all;
    } else if (errno == EAGAIN) {
      pollfd watched{channel.fd(), POLLIN, 0};
      if (::poll(&watched, 1, most_ms) <= 0) {
        all.failure = ETIMEDOUT;
        return all;
      }
    } else {
      all.failure = errno;
      return all;
    }
  }
}

// How it ended, once it has.
ExecEnd end_of(const ExecChannel& channel) {
  for (int i = 0; i < 20'000 && !channel.ended(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return channel.ended().value_or(ExecEnd{.why = "it has not ended"});
}

bool write_all(ExecChannel& channel, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = channel.write_some(bytes.data(), bytes.size());
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    pollfd watched{channel.fd(), POLLOUT, 0};
    if (n == 0 || errno != EAGAIN || ::poll(&watched, 1, 20'000) <= 0) return false;
  }
  return true;
}

TEST(K8sExec, SendsItsRequestAndDropsStderr) {
  FakeCluster cluster(v4([](Peer& peer) {
    peer.write(frame(on(1, "")) + frame(on(1, "ou")) + frame(on(2, "err\n")) + frame(on(1, "t")) + kFailure +
               kClose);
  }));
  Open open(cluster);
  const All all = read_all(*open.channel);
  EXPECT_EQ(all.bytes, "out");
  EXPECT_EQ(all.failure, 0);
  EXPECT_TRUE(end_of(*open.channel).has_status);
  const Heard heard = cluster.heard()[0];
  EXPECT_EQ(heard.target,
            "/api/v1/namespaces/box/pods/pod/exec?container=main&command=run&command=a%20b%26c&stdin=true&"
            "stdout=true&stderr=true");
  EXPECT_EQ(heard.header("Sec-WebSocket-Protocol"), "v5.channel.k8s.io, v4.channel.k8s.io");
}

TEST(K8sExec, ItsShutdownEndsTheInputWithV5) {
  std::string got;
  std::atomic<bool> ended{false}, gone{false};
  FakeCluster cluster(v5([&](Peer& peer) {
    int opcode = 0;
    for (std::string payload; !ended && read_frame(peer, opcode, payload);) {
      if (opcode == 2 && payload[0] == 0) got += payload.substr(1);
      if (payload == std::string("\xff\0", 2)) ended = true;
    }
    gone = true;
  }));
  Open open(cluster);
  EXPECT_TRUE(write_all(*open.channel, "some input"));
  open.channel->shutdown();
  for (int i = 0; i < 20'000 && !gone; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(ended);
  EXPECT_EQ(got, "some input");
}

TEST(K8sExec, FramesComeInAnyPieces) {
  const std::string bytes = frame(on(1, "one"), 2, false) + frame("p", 9) + frame("two", 0, false) +
                            frame("", 0) + frame("", 2, false) + frame(on(1, "three"), 0) + frame("") +
                            kFailure + kClose;
  for (const size_t piece : {size_t{1}, size_t{3}, bytes.size()}) {
    std::atomic<bool> answered{false};
    FakeCluster cluster(v4([&](Peer& peer) {
      for (size_t at = 0; at < bytes.size(); at += piece)
        peer.write(std::string_view(bytes).substr(at, piece));
      int opcode = 0;
      for (std::string payload; read_frame(peer, opcode, payload);)
        if (opcode == 10 && payload == "p") answered = true;
    }));
    {
      Open open(cluster);
      EXPECT_EQ(read_all(*open.channel).bytes, "onetwothree");
      EXPECT_TRUE(end_of(*open.channel).has_status);
    }
    for (int i = 0; i < 100 && !answered; ++i) std::this_thread::sleep_for(milliseconds(10));
    EXPECT_TRUE(answered);
  }
}

TEST(K8sExec, AStreamThatEndsWithoutAWholeStatusIsLost) {
  const std::string status = R"({"status":"Failure","details":{"causes":[]}})";
  for (const std::string& last : {std::string(), kClose, frame(on(3, status.substr(0, 20))) + kClose,
                                  frame(on(3, "{}")) + kClose, frame(on(3, R"({"status":"Succ"})")) + kClose,
                                  frame(on(3, "[1]")) + kClose, frame(on(3, "")) + kClose}) {
    FakeCluster cluster(v4([&](Peer& peer) { peer.write(frame(on(1, "partial")) + last); }));
    Open open(cluster);
    const All all = read_all(*open.channel);
    EXPECT_EQ(all.bytes, "partial");
    EXPECT_EQ(all.failure, ECONNRESET);
    const ExecEnd end = end_of(*open.channel);
    EXPECT_FALSE(end.has_status);
    EXPECT_NE(end.why, "");
  }
}

TEST(K8sExec, AStatusInPartsIsOne) {
  const std::string status =
      R"({"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"137"}]}})";
  FakeCluster cluster(v4([&](Peer& peer) {
    for (const char c : status) peer.write(frame(on(3, std::string(1, c))));
    peer.write(kClose);
  }));
  Open open(cluster);
  EXPECT_TRUE(end_of(*open.channel).has_status);
}

TEST(K8sExec, AStatusIsOneHoweverItsDetailsLook) {
  for (const char* details : {"7", "null", "[]", R"({"causes":{}})", R"({"causes":[[]]})"})
    EXPECT_TRUE(is_exec_status(R"({"status":"Failure","details":)" + std::string(details) + "}")) << details;
  for (const char* none : {"", "7", "[]", "{}", R"({"status":7})", R"({"status":"Unknown"})"})
    EXPECT_FALSE(is_exec_status(none)) << none;
}

TEST(K8sExec, AStatusSufficesWhereTheServerDoesNotHangUp) {
  FakeCluster cluster(v4([&](Peer& peer) {
    peer.write(frame(on(1, "x")) + kSuccess);
    peer.read(1000);
  }));
  Open open(cluster);
  EXPECT_EQ(read_all(*open.channel).bytes, "x");
  EXPECT_TRUE(end_of(*open.channel).has_status);
}

TEST(K8sExec, GarbageClosesTheConnection) {
  const struct {
    std::string bytes;
    const char* said;
  } table[] = {
      {"\x82\x83"
       "abcd"
       "xyz",
       "masked"},
      {"\xc2\x01x", "reserved"},
      {frame(on(1, "text"), 1), "unknown kind"},
      {frame("x", 5), "unknown kind"},
      {frame("x", 0), "continues nothing"},
      {frame(on(1, "a"), 2, false) + frame(on(1, "b")), "within another"},
      {frame("x", 9, false), "in parts"},
      {frame(std::string(126, 'x'), 9), "too long"},
      {std::string("\x82\x7e\x00\x05", 4), "not the shortest"},
      {std::string("\x82\x7f\x00\x00\x00\x00\x00\x00\x01\x00", 10), "not the shortest"},
      {std::string("\x82\x7f\x00\x00\x00\x00\x10\x00\x00\x00", 10), "too big"},
      {std::string("\x82\x7f\xff\xff\xff\xff\xff\xff\xff\xff", 10), "too big"},
      {frame(on(4, "x")), "channel 4"},
      {frame(on(0, "x")), "channel 0"},
      {frame(on(3, std::string(70'000, ' '))), "Status is too big"},
  };
  for (const auto& row : table) {
    std::atomic<int> code{0};
    {
      FakeCluster cluster(v4([&](Peer& peer) {
        peer.write(row.bytes);
        int opcode = 0;
        for (std::string payload; read_frame(peer, opcode, payload);)
          if (opcode == 8 && payload.size() == 2) code = (payload[0] & 255) << 8 | (payload[1] & 255);
      }));
      Open open(cluster);
      EXPECT_EQ(read_all(*open.channel).failure, ECONNRESET);
      const ExecEnd end = end_of(*open.channel);
      EXPECT_FALSE(end.has_status);
      EXPECT_NE(end.why.find(row.said), std::string::npos) << end.why;
    }
    EXPECT_TRUE(code == 1002 || code == 1009) << row.said;
  }
}

TEST(K8sExec, AnInvalidHandshakeIsRefused) {
  const std::vector<std::function<std::string(const Heard&)>> answers = {
      [](const Heard& heard) { return accept_with(heard, "v3.channel.k8s.io"); },
      [](const Heard& heard) { return accept_with(heard, ""); },
      [](const Heard& heard) {
        return accept_with(heard, "v5.channel.k8s.io", "Sec-WebSocket-Extensions: permessage-deflate\r\n");
      },
      [](const Heard&) {
        return std::string(
            "HTTP/1.1 101 X\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
            "x\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n");
      },
      [](const Heard&) { return FakeCluster::json("{}"); },
  };
  for (const auto& answer : answers) {
    FakeCluster cluster([&](Peer& peer, const Heard& heard) {
      peer.write(answer(heard));
      return false;
    });
    EXPECT_EQ(failure_of([&] { Open open(cluster); }).status, ISOGATE_UNAVAILABLE);
  }
  FakeCluster gone([](Peer& peer, const Heard&) {
    peer.write(FakeCluster::status(404, "NotFound", "", "pod"));
    return true;
  });
  EXPECT_EQ(failure_of([&] { Open open(gone); }).status, ISOGATE_NOT_FOUND);
}

// An exec is a GET, and must not be done twice.
TEST(K8sExec, IsNeverAskedForTwice) {
  for (const int code : {429, 503}) {
    FakeCluster busy([code](Peer& peer, const Heard&) {
      peer.write(FakeCluster::status(code, "Busy", "Retry-After: 0\r\n"));
      return true;
    });
    EXPECT_EQ(failure_of([&] { Open open(busy); }).http_status, code);
    EXPECT_EQ(busy.heard().size(), 1u);
  }
  FakeCluster dies([](Peer&, const Heard&) { return false; });
  EXPECT_TRUE(failure_of([&] { Open open(dies); }).maybe_done);
  EXPECT_EQ(dies.heard().size(), 1u);
}

TEST(K8sExec, AHalfOpenConnectionIsNoticedWithoutAReader) {
  FakeCluster cluster(v4([](Peer& peer) {
    while (!peer.read_some().empty()) {
    }
  }));
  ExecRequest one = request();
  one.ping_every = milliseconds(100);
  one.pong_patience = milliseconds(300);
  Open open(cluster, one);
  const ExecEnd end = end_of(*open.channel);
  EXPECT_FALSE(end.has_status);
  EXPECT_NE(end.why.find("ping"), std::string::npos) << end.why;
}

TEST(K8sExec, PingsKeepAConnectionThatAnswersThem) {
  FakeCluster cluster(v4([](Peer& peer) {
    int opcode = 0, pings = 0;
    for (std::string payload; pings < 50 && read_frame(peer, opcode, payload);)
      if (opcode == 9) peer.write(frame(payload, 10)), ++pings;
    peer.write(kSuccess + kClose);
  }));
  ExecRequest one = request();
  one.ping_every = milliseconds(50);
  one.pong_patience = seconds(2);
  Open open(cluster, one);
  EXPECT_TRUE(end_of(*open.channel).has_status);
}

TEST(K8sExec, AReaderThatIsSlowSlowsTheServerAndIsNoHalfOpenConnection) {
  std::atomic<size_t> sent{0};
  FakeCluster cluster(v4([&](Peer& peer) {
    const std::string piece = frame(on(1, std::string(65'536, 'x')));
    for (int i = 0; i < 1024; ++i) {
      peer.write(piece);
      sent += 65'536;
    }
    peer.write(kSuccess + kClose);
  }));
  ExecRequest one = request();
  one.ping_every = milliseconds(50);
  one.pong_patience = milliseconds(1000);
  Open open(cluster, one);
  std::this_thread::sleep_for(seconds(3));
  EXPECT_LT(sent, size_t{32} << 20);
  EXPECT_EQ(read_all(*open.channel).bytes.size(), size_t{64} << 20);
  EXPECT_TRUE(end_of(*open.channel).has_status);
}

TEST(K8sExec, AServerThatTakesNothingStopsTheWriter) {
  FakeCluster cluster(v4([](Peer&) { std::this_thread::sleep_for(seconds(1)); }));
  Open open(cluster);
  size_t written = 0;
  const std::string piece(65'536, 'x');
  for (int tries = 0; tries < 20;) {
    const ssize_t n = open.channel->write_some(piece.data(), piece.size());
    if (n > 0) {
      written += static_cast<size_t>(n);
    } else {
      ++tries;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  EXPECT_LT(written, size_t{32} << 20);
}

TEST(K8sExec, ItsOwnShutdownWakesEveryWaiter) {
  FakeCluster cluster(v5([](Peer& peer) { peer.read(1 << 20); }));
  Open open(cluster);
  std::thread closer([&] {
    std::this_thread::sleep_for(milliseconds(100));
    open.channel->shutdown();
  });
  EXPECT_EQ(read_all(*open.channel).failure, ECONNRESET);
  EXPECT_FALSE(end_of(*open.channel).has_status);
  EXPECT_FALSE(write_all(*open.channel, "x"));
  closer.join();
}

// Both ways at once over TLS, the server sends back what it gets. How fast is told, not tested.
TEST(K8sExec, BytesAreTheSameBothWaysOverTls) {
  const test::Authority authority;
  authority.sign("server", "IP:127.0.0.1");
  constexpr size_t kSize = size_t{64} << 20;
  FakeCluster cluster(v5([](Peer& peer) {
                        int opcode = 0;
                        size_t got = 0;
                        for (std::string payload; got < kSize && read_frame(peer, opcode, payload);) {
                          if (opcode != 2) continue;
                          got += payload.size() - 1;
                          payload[0] = 1;
                          peer.write(frame(payload));
                        }
                        peer.write(kSuccess + kClose);
                      }),
                      &authority);
  Open open(cluster);
  std::string bytes(kSize, '\0');
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
  std::thread writer([&] { EXPECT_TRUE(write_all(*open.channel, bytes)); });
  EXPECT_TRUE(read_all(*open.channel).bytes == bytes);
  writer.join();
  EXPECT_TRUE(end_of(*open.channel).has_status);
}

// Prints the rate of bytes in only one direction.
TEST(K8sExec, BytesComeAndGoFast) {
  constexpr size_t kSize = size_t{512} << 20;
  std::atomic<size_t> got{0};
  FakeCluster cluster(v5([&](Peer& peer) {
    const std::string piece = frame(on(1, std::string(size_t{1} << 20, 'x')));
    for (size_t at = 0; at < kSize; at += size_t{1} << 20) peer.write(piece);
    while (got < kSize) {
      const std::string some = peer.read_some();
      if (some.empty()) return;
      got += some.size();
    }
    peer.write(kSuccess + kClose);
  }));
  Open open(cluster);
  std::string buffer(1 << 20, '\0');
  auto begin = Clock::now();
  for (size_t at = 0; at < kSize;) {
    const ssize_t n = open.channel->read_some(buffer.data(), buffer.size());
    pollfd watched{open.channel->fd(), POLLIN, 0};
    if (n > 0)
      at += static_cast<size_t>(n);
    else
      ASSERT_GT(::poll(&watched, 1, 20'000), 0);
  }
  const auto rate = [&] {
    return static_cast<int>(static_cast<double>(kSize >> 20) /
                            std::chrono::duration<double>(Clock::now() - begin).count());
  };
  RecordProperty("down_mib_per_s", rate());
  std::printf("down: %d MiB/s\n", rate());
  begin = Clock::now();
  for (size_t at = 0; at < kSize; at += buffer.size()) ASSERT_TRUE(write_all(*open.channel, buffer));
  EXPECT_TRUE(end_of(*open.channel).has_status);
  std::printf("up: %d MiB/s\n", rate());
}

}  // namespace
}  // namespace isogate::k8s
