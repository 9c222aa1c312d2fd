// A runner that breaks the protocol costs its own connection, and nothing else.
#include <gtest/gtest.h>

#include "calls.h"
#include "peer.h"

namespace isogate::testing {
namespace {

struct Bad {
  const char* name;
  std::string bytes;  // sent while stream 1, an exec without descriptors, runs
};

std::string bad_result(const std::function<void(isogate_runner_result&)>& change) {
  auto said = success();
  change(said);
  return result_frame(1, said);
}

std::vector<Bad> bad_things() {
  const std::string window(ISOGATE_RUNNER_MAX_FRAME - 8, 'x');
  std::string overrun;
  for (int i = 0; i < 5; ++i) overrun += channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 0, window);
  return {
      {"garbage", std::string("HTTP/1.1 200 OK\r\nServer: none\r\n\r\n")},
      {"noughts", std::string(64, '\0')},
      {"a frame of 4 GiB", raw(isogate_runner_frame{UINT32_MAX, ISOGATE_RUNNER_DATA, 0, 1})},
      {"a result of 64 KiB", raw(isogate_runner_frame{64 << 10, ISOGATE_RUNNER_RESULT, 0, 1})},
      {"an unknown type", frame(77, 1, "")},
      {"a request", frame(ISOGATE_RUNNER_CANCEL, 1, "")},
      {"an unknown flag", frame(ISOGATE_RUNNER_END, 1, raw(isogate_runner_channel{1, 0}), 2)},
      {"descriptors", frame(ISOGATE_RUNNER_END, 1, raw(isogate_runner_channel{1, 0}), 1)},
      {"a stream that never began", result_frame(2, success())},
      {"the connection's own stream", result_frame(0, success())},
      {"more bytes than credit", overrun},
      {"an unknown channel", channel_frame(ISOGATE_RUNNER_DATA, 1, 3, 0, "x")},
      {"output on stdin", channel_frame(ISOGATE_RUNNER_DATA, 1, 0, 0, "x")},
      {"output nobody asked for", channel_frame(ISOGATE_RUNNER_DATA, 1, 2, 0, "x")},
      {"output after its end",
       channel_frame(ISOGATE_RUNNER_END, 1, 1, 0) + channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 0, "x")},
      {"two ends", channel_frame(ISOGATE_RUNNER_END, 1, 1, 0) + channel_frame(ISOGATE_RUNNER_END, 1, 1, 0)},
      {"reserved bits", channel_frame(ISOGATE_RUNNER_DATA, 1, 1, 9, "x")},
      {"credit for nothing", channel_frame(ISOGATE_RUNNER_CREDIT, 1, 0, 100)},
      {"entries nobody asked for", frame(ISOGATE_RUNNER_ENTRIES, 1, entry("a"))},
      {"a second hello", frame(ISOGATE_RUNNER_HELLO, 0, raw(hello(kAble)))},
      {"an answer without a ping", frame(ISOGATE_RUNNER_PONG, 0, std::string(8, '\0'))},
      {"a message longer than it is", frame(ISOGATE_RUNNER_RESULT, 1, raw(success()) + raw(uint32_t{900}))},
      {"a message shorter than it is",
       frame(ISOGATE_RUNNER_RESULT, 1, raw(success()) + raw(uint32_t{1}) + "abc")},
      {"an impossible exit code", bad_result([](auto& said) { said.exit_code = 256; })},
      {"a negative exit code", bad_result([](auto& said) { said.exit_code = -1; })},
      {"an impossible signal", bad_result([](auto& said) { said.term_signal = 65; })},
  };
}

TEST(RunnerLinkHostile, WhatBreaksTheProtocolEndsTheConnection) {
  for (const Bad& bad : bad_things()) {
    SCOPED_TRACE(bad.name);
    Begun begun("true");
    [[maybe_unused]] const bool sent = begun.peer.try_send(bad.bytes);
    const Outcome outcome = begun.done.get();
    EXPECT_EQ(outcome.status, ISOGATE_LOST) << outcome.message;
    EXPECT_FALSE(begun.link->alive());
    EXPECT_FALSE(begun.link->why().empty());
    EXPECT_EQ(begun.exec.run(*begun.link).status, ISOGATE_UNAVAILABLE);
    EXPECT_EQ(begun.peer.hear().head.type, 0u);  // the client has closed
  }
}

TEST(RunnerLinkHostile, ASecondResultEndsTheConnection) {
  Peer peer;
  auto link = peer.link();
  const Exec first({"true"}), second({"true"});
  auto one = first.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  auto two = second.start(*link);
  peer.expect(ISOGATE_RUNNER_EXEC);
  peer.send(result_frame(1, success()) + result_frame(1, success()));
  EXPECT_EQ(one.get().status, ISOGATE_OK);
  EXPECT_EQ(two.get().status, ISOGATE_LOST);
}

TEST(RunnerLinkHostile, BytesOfAStreamThatHasEndedAreSkipped) {
  Peer peer;
  auto link = peer.link(0);
  Pipe out;
  Exec exec({"true"});
  exec.out = out.writer;
  for (uint32_t stream = 1; stream < 4; ++stream) {
    auto done = exec.start(*link);
    peer.expect(ISOGATE_RUNNER_EXEC);
    if (stream > 1) peer.send(channel_frame(ISOGATE_RUNNER_DATA, stream - 1, 1, 0, "late"));
    peer.send(result_frame(stream, success()) + channel_frame(ISOGATE_RUNNER_CREDIT, stream, 0, 9));
    EXPECT_EQ(done.get().status, ISOGATE_OK);
  }
  EXPECT_EQ(out.read_all(), "");
}

TEST(RunnerLinkHostile, AnEndOfTheStreamLosesWhatIsUnderWay) {
  for (const std::string& last : {std::string(), result_frame(1, success()).substr(0, 100)}) {
    Peer peer;
    auto link = peer.link();
    const Ask ask;
    const Exec exec({"true"});
    auto lost = exec.start(*link);
    peer.expect(ISOGATE_RUNNER_EXEC);
    auto changed = later([&](Outcome&) { link->mkdir(ask.call, file_request("d")); });
    peer.expect(ISOGATE_RUNNER_FILE);
    auto looked = later([&](Outcome& outcome) { link->stat(ask.call, file_request("f"), outcome.entry); });
    peer.expect(ISOGATE_RUNNER_FILE);
    peer.send(last);
    peer.close();
    EXPECT_EQ(lost.get().status, ISOGATE_LOST);
    EXPECT_EQ(changed.get().status, ISOGATE_LOST);
    EXPECT_EQ(looked.get().status, ISOGATE_UNAVAILABLE);
    EXPECT_NE(link->why().find(last.empty() ? "it ended" : "in the midst of a frame"), std::string::npos);
    EXPECT_FALSE(link->ping(std::chrono::seconds(1)));
  }
}

TEST(RunnerLinkHostile, ClosingEndsWhatIsUnderWay) {
  Peer peer;
  auto link = peer.link();
  const Exec exec({"true"});
  std::vector<std::future<Outcome>> calls;
  for (int i = 0; i < 8; ++i) {
    calls.push_back(exec.start(*link));
    peer.expect(ISOGATE_RUNNER_EXEC);
  }
  link->close("the sandbox ends");
  for (auto& call : calls) {
    const Outcome outcome = call.get();
    EXPECT_EQ(outcome.status, ISOGATE_LOST);
    EXPECT_NE(outcome.message.find("the sandbox ends"), std::string::npos);
  }
}

Outcome connect_to(Peer& peer, int patience_ms, const Ask& ask) {
  return outcome_of([&](Outcome&) {
    sdk::RunnerLink::connect(peer.client_end(), std::chrono::milliseconds(patience_ms), ask.call);
  });
}

TEST(RunnerLinkHostile, AHelloThatDoesNotFitIsRefusedWithTheReason) {
  const std::vector<std::pair<const char*, std::function<void(isogate_runner_hello&)>>> unfit = {
      {"version 2", [](auto& said) { said.major = 2; }},
      {"no isogate-runner", [](auto& said) { said.magic = 1; }},
      {"reserved", [](auto& said) { said.reserved = 1; }}};
  for (const auto& [why, change] : unfit) {
    Peer peer;
    auto said = hello(kAble);
    change(said);
    peer.send(frame(ISOGATE_RUNNER_HELLO, 0, raw(said)));
    const Outcome outcome = connect_to(peer, 5000, Ask());
    EXPECT_EQ(outcome.status, ISOGATE_UNAVAILABLE);
    EXPECT_NE(outcome.message.find(why), std::string::npos) << outcome.message;
  }
}

TEST(RunnerLinkHostile, AHigherMinorVersionIsAccepted) {
  Peer peer;
  auto said = hello(kAble);
  said.minor = ISOGATE_RUNNER_MINOR + 1;
  peer.send(frame(ISOGATE_RUNNER_HELLO, 0, raw(said)));
  EXPECT_EQ(connect_to(peer, 5000, Ask()).status, ISOGATE_OK);
}

TEST(RunnerLinkHostile, AnythingButAHelloIsNoRunner) {
  for (const std::string& bytes :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n"), frame(ISOGATE_RUNNER_PONG, 0, "12345678"),
        raw(isogate_runner_frame{UINT32_MAX, ISOGATE_RUNNER_HELLO, 0, 0}),
        frame(ISOGATE_RUNNER_HELLO, 5, raw(hello(0)))}) {
    Peer peer;
    peer.send(bytes);
    EXPECT_EQ(connect_to(peer, 5000, Ask()).status, ISOGATE_UNAVAILABLE);
  }
}

TEST(RunnerLinkHostile, SilenceIsWaitedForWithPatience) {
  Peer silent, gone, cancelled;
  EXPECT_EQ(connect_to(silent, 50, Ask()).status, ISOGATE_UNAVAILABLE);
  gone.close();
  EXPECT_EQ(connect_to(gone, 5000, Ask()).status, ISOGATE_UNAVAILABLE);
  const Ask ask;
  ask.cancel();
  EXPECT_EQ(connect_to(cancelled, 5000, ask).status, ISOGATE_CANCELLED);
}

TEST(RunnerLinkHostile, ItsHelloIsKept) {
  Peer peer;
  auto link = peer.link(kAble | ISOGATE_RUNNER_IS_INIT | 1u << 20);
  EXPECT_EQ(link->peer().pid, 7u);
  EXPECT_EQ(link->peer().uid, 1000u);
  EXPECT_TRUE(link->peer().is_init && link->peer().has_pty);
  EXPECT_EQ(link->peer().build, "test");
}

}  // namespace
}  // namespace isogate::testing
