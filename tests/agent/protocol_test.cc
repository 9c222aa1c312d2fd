// A violation of the protocol ends the connection, and nothing else.
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "tests/agent/peer.h"
#include "tests/eventually.h"
#include "tests/support/processes.h"

namespace isogate::test {
namespace {

std::string frame(uint32_t size, uint16_t type, uint16_t flags, uint32_t stream) {
  const isogate_runner_frame head = {size, type, flags, stream};
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

std::string channel(uint32_t number, uint32_t bytes = 0) {
  const isogate_runner_channel head = {number, bytes};
  return {reinterpret_cast<const char*>(&head), sizeof head};
}

TEST(AgentProtocol, FaultsEndTheConnection) {
  AgentProcess agent;
  struct Row {
    const char* what;
    std::string bytes;
  };
  std::string garbage(4096, '\0');
  std::mt19937 random(7);
  for (char& byte : garbage) byte = static_cast<char>(random());
  const std::vector<Row> rows = {
      {"garbage", garbage},
      {"4 GiB of a program", frame(0xffffffff, ISOGATE_RUNNER_EXEC, 0, 1)},
      {"more than a request", frame((4u << 20) + 1, ISOGATE_RUNNER_EXEC, 0, 1)},
      {"more than a frame", frame((64u << 10) + 1, ISOGATE_RUNNER_DATA, 0, 1)},
      {"a short request", frame(3, ISOGATE_RUNNER_EXEC, 0, 1)},
      {"an unknown type", frame(0, 77, 0, 1)},
      {"a runner's type", frame(0, ISOGATE_RUNNER_RESULT, 0, 1)},
      {"an unknown flag", frame(0, ISOGATE_RUNNER_CANCEL, 4, 1)},
      {"descriptors that did not come",
       frame(52, ISOGATE_RUNNER_FILE, 1, 1) + std::string("\1\0\0\0", 4) + std::string(48, '\0')},
      {"a request on stream 0", frame(24, ISOGATE_RUNNER_EXEC, 0, 0) + std::string(24, '\0')},
      {"a request without its strings", frame(24, ISOGATE_RUNNER_EXEC, 0, 1) + std::string(24, '\0')},
      {"a string that is too long",
       frame(28, ISOGATE_RUNNER_EXEC, 0, 1) + std::string(24, '\0') + "\xff\xff\xff\x7f"},
      {"an unknown verb",
       frame(52, ISOGATE_RUNNER_FILE, 0, 1) + std::string("\x63\0\0\0", 4) + std::string(48, '\0')},
      {"evidence without listeners", frame(12, ISOGATE_RUNNER_EVIDENCE, 0, 1) + std::string(12, '\0')},
      {"a stream that has not begun", frame(8, ISOGATE_RUNNER_DATA, 0, 9) + channel(0)},
      {"a second hello", frame(64, ISOGATE_RUNNER_HELLO, 0, 0) + std::string(64, '\0')},
      {"a long ping", frame(65, ISOGATE_RUNNER_PING, 0, 0)},
  };
  for (const Row& row : rows) {
    Peer peer = agent.accept();
    peer.send_bytes(row.bytes);
    EXPECT_TRUE(peer.ended(5)) << row.what;
  }
  EXPECT_EQ(agent.accept().run("echo fine").out, "fine\n");
  EXPECT_LT(resident_kib(agent.pid()), kib_bound(16 << 10));
}

using AgentFrames = OneClient;

TEST_F(AgentFrames, AStreamNeverGoesBackwards) {
  peer.next_stream = 5;
  EXPECT_TRUE(peer.finish(peer.exec(shell("true"))).arrived);
  peer.next_stream = 5;
  peer.exec(shell("true"));
  EXPECT_TRUE(peer.ended());
}

TEST_F(AgentFrames, BytesAboveTheCreditEndTheConnection) {
  ExecSpec spec = shell("sleep 10");
  spec.flags |= ISOGATE_RUNNER_EXEC_STDIN;
  const uint32_t stream = peer.exec(spec);
  for (int i = 0; i < 8; ++i) peer.data(stream, std::string(60000, 'x'));
  EXPECT_TRUE(peer.ended());
}

TEST(AgentProtocol, WhatAStreamHasNoUseForEndsTheConnection) {
  AgentProcess agent;
  for (const uint16_t type : {ISOGATE_RUNNER_DATA, ISOGATE_RUNNER_END, ISOGATE_RUNNER_CREDIT}) {
    Peer peer = agent.accept();
    const uint32_t stream = peer.exec(shell("sleep 10"));
    peer.send(type, stream, channel(type == ISOGATE_RUNNER_CREDIT ? 7 : 0, 1));
    EXPECT_TRUE(peer.ended()) << type;
  }
}

TEST_F(AgentFrames, WhatComesForAnEndedStreamIsSkipped) {
  const uint32_t stream = peer.exec(shell("true"));
  ASSERT_TRUE(peer.finish(stream).arrived);
  peer.cancel(stream);
  peer.data(stream, "late");
  peer.end(stream);
  peer.credit(stream, ISOGATE_RUNNER_STDOUT, 5);
  peer.signal(stream, 9);
  EXPECT_EQ(peer.run("echo fine").out, "fine\n");
}

TEST(AgentProtocol, SaysItsVersionToAnother) {
  AgentProcess agent;
  Peer peer = agent.accept_silently();
  const auto hello = peer.hello(99);
  ASSERT_TRUE(hello.has_value());
  EXPECT_EQ(hello->major, ISOGATE_RUNNER_MAJOR);
  EXPECT_TRUE(peer.ended());
}

TEST(AgentProtocol, ServesNoClientWithoutHello) {
  AgentProcess agent;
  Peer peer = agent.accept_silently();
  peer.exec(shell("touch made"));
  EXPECT_TRUE(peer.ended());
  EXPECT_EQ(agent.accept().run("ls").out, "");
}

// By then it pauses 0.5 s between two attempts, and the next one is 0.3 s away. A busy machine delays some.
TEST(AgentProtocol, DialsAsSoonAsTheSocketIsThere) {
  AgentProcess agent;
  { Peer first = agent.accept(); }
  int late = 0;
  for (int i = 0; i < 8; ++i) {
    agent.close_listener();
    std::this_thread::sleep_for(std::chrono::milliseconds(1300));
    agent.open_listener();
    const auto start = std::chrono::steady_clock::now();
    agent.accept();
    late += since(start) > 0.25 ? 1 : 0;
  }
  EXPECT_LE(late, 4) << "of eight";
}

TEST_F(AgentFrames, AnswersPings) {
  peer.send(ISOGATE_RUNNER_PING, 0, "are you there?");
  const auto pong = peer.receive();
  ASSERT_TRUE(pong.has_value());
  EXPECT_EQ(pong->head.type, ISOGATE_RUNNER_PONG);
  EXPECT_EQ(pong->payload, "are you there?");
}

TEST_F(AgentFrames, TakesFramesInPiecesAndTogether) {
  std::string bytes;
  for (int i = 0; i < 50; ++i) bytes += frame(3, ISOGATE_RUNNER_PING, 0, 0) + "abc";
  for (const char byte : bytes) peer.send_bytes(std::string(1, byte));
  peer.send_bytes(bytes);
  for (int i = 0; i < 100; ++i) {
    const auto pong = peer.receive();
    ASSERT_TRUE(pong.has_value());
    EXPECT_EQ(pong->payload, "abc");
  }
}

TEST_F(AgentFrames, ARequestOfAllItsBytesIsTaken) {
  ExecSpec spec = shell("echo $#");
  spec.argv.insert(spec.argv.end(), 31, std::string(125 << 10, 'a'));
  const Outcome outcome = peer.finish(peer.exec(spec));
  EXPECT_EQ(outcome.result.status, ISOGATE_INVALID_ARGUMENT) << "the kernel takes 2 MiB in all";
  EXPECT_EQ(peer.run("echo fine").out, "fine\n");
  EXPECT_LT(resident_kib(agent.pid()), kib_bound(32 << 10));
}

TEST_F(AgentFrames, RefusesTooManyStringsWithoutTakingThem) {
  isogate_runner_exec head{};
  head.argc = 0xffffffff;
  head.envc = 0xffffffff;
  std::string payload(reinterpret_cast<const char*>(&head), sizeof head);
  payload += std::string(3 << 20, '\0');
  peer.send(ISOGATE_RUNNER_EXEC, 1, payload);
  peer.next_stream = 2;
  EXPECT_EQ(peer.finish(1).result.status, ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(peer.run("echo fine").out, "fine\n");
}

TEST_F(AgentFrames, DescriptorsThatNoRequestNamesEndTheConnection) {
  peer.send_bytes(frame(0, ISOGATE_RUNNER_PING, 0, 0), {0});
  ExecSpec spec = shell("true");
  spec.fds = {0, 1};
  spec.flags = ISOGATE_RUNNER_EXEC_STDOUT | ISOGATE_RUNNER_EXEC_STDERR;
  peer.exec(spec);
  EXPECT_TRUE(peer.ended());
  peer = agent.accept();
  spec.fds = {0, 1, 2};
  peer.exec(spec);
  EXPECT_TRUE(peer.ended());
  peer = agent.accept();
  peer.send_bytes(frame(0, ISOGATE_RUNNER_PING, 0, 0), {0, 0, 0, 0, 0});
  EXPECT_TRUE(peer.ended());
  EXPECT_EQ(agent.accept().run("echo fine").out, "fine\n");
}

TEST_F(AgentFrames, AReaderThatReadsNothingCostsNoMemory) {
  std::vector<uint32_t> streams;
  for (int i = 0; i < 30; ++i) {
    streams.push_back(peer.exec(shell("yes")));
    peer.credit(streams.back(), ISOGATE_RUNNER_STDOUT, 1u << 30);
  }
  std::this_thread::sleep_for(std::chrono::seconds(1));
  EXPECT_LT(resident_kib(agent.pid()), kib_bound(16 << 10));
  agent.signal(SIGTERM);
  EXPECT_TRUE(agent.ended(5)) << "a client that does not read keeps it from ending";
}

TEST_F(AgentFrames, MoreCallsThanThereMayBeAreRefused) {
  FileSpec write;
  write.verb = ISOGATE_RUNNER_WRITE;
  constexpr int kMany = 600;  // each holds a thread; the rest of the streams would cost too many here
  for (int i = 0; i < kMany; ++i) {
    write.path = "f" + std::to_string(i);
    peer.file(write);
  }
  EXPECT_EQ(peer.run("echo fine").out, "fine\n");
  for (uint32_t stream = 1; stream <= kMany; ++stream) peer.end(stream);
  int done = 0;
  while (done < kMany) {
    const auto next = peer.receive();
    ASSERT_TRUE(next.has_value());
    done += next->head.type == ISOGATE_RUNNER_RESULT ? 1 : 0;
  }
  EXPECT_TRUE(test::eventually(30,
                               [&] {
                                 return std::stoi(status_field(agent.pid(), "Threads")) <= 8 &&
                                        open_files(agent.pid()).size() < 30;
                               }))
      << status_field(agent.pid(), "Threads") << " threads, " << open_files(agent.pid()).size() << " files";
}

TEST(AgentProtocol, StdioEndsWithItsConnection) {
  for (const bool pipes : {false, true}) {
    StdioAgent agent(pipes);
    const std::string mark = new_mark();
    agent.peer.exec(shell("setsid sleep " + mark + " & sleep " + mark));
    ASSERT_TRUE(there_within(5, mark, 2));
    agent.peer = Peer();
    EXPECT_TRUE(agent.ended(5)) << pipes;
    EXPECT_TRUE(gone_within(0.3, mark));
  }
}

}  // namespace
}  // namespace isogate::test
