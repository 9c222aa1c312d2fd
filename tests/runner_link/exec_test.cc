// An exec as the runner sees it, and what the caller gets of the runner's response.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "calls.h"
#include "peer.h"

namespace isogate::testing {
namespace {

bool is_same_file(int a, int b) {
  struct stat one {
  }, other{};
  return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_ino == other.st_ino;
}

TEST(RunnerLinkExec, ItsRequestHasAllFieldsAndTheDescriptorsThemselves) {
  Peer peer;
  auto link = peer.link();
  Pipe out;
  Exec exec({"ls", "-l"});
  exec.cwd = "sub";
  exec.user = "nobody";
  exec.env = {{sdk::str("A"), sdk::str("b")}};
  exec.out = out.writer;
  auto done = exec.start(*link);
  const Heard heard = peer.expect(ISOGATE_RUNNER_EXEC);
  EXPECT_EQ(heard.head.flags, ISOGATE_RUNNER_WITH_DESCRIPTORS);
  EXPECT_EQ(heard.head.stream, 1u);
  const auto head = heard.as<isogate_runner_exec>();
  EXPECT_EQ(head.flags, ISOGATE_RUNNER_EXEC_STDOUT);
  EXPECT_EQ(head.argc, 2u);
  EXPECT_EQ(head.envc, 1u);
  std::string strings;
  for (const char* text : {"sub", "nobody", "ls", "-l", "A", "b"})
    strings += raw(static_cast<uint32_t>(std::strlen(text))) + text;
  EXPECT_EQ(heard.payload.substr(sizeof head), strings);
  ASSERT_EQ(heard.fds.size(), 1u);
  EXPECT_TRUE(is_same_file(heard.fds[0], out.writer));
  auto said = success();
  said.exit_code = 3;
  said.wall_ns = 5;
  said.cpu_ns = UINT64_MAX;
  peer.send(result_frame(1, said));
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.exec.exit_code, 3);
  EXPECT_EQ(outcome.exec.wall_ns, 5u);
  EXPECT_EQ(outcome.exec.cpu_ns, static_cast<uint64_t>(INT64_MAX));
}

TEST(RunnerLinkExec, WithoutDescriptorsItsBytesGoBothWays) {
  Peer peer;
  auto link = peer.link(ISOGATE_RUNNER_HAS_PTY);
  Pipe in, out, err;
  Exec exec({"cat"});
  exec.in = in.reader, exec.out = out.writer, exec.err = err.writer;
  auto done = exec.start(*link);
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_EXEC).head.flags, 0u);
  in.write("given");
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_DATA).bytes(), "given");
  in.close_writer();
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_END).as<isogate_runner_channel>().channel, ISOGATE_RUNNER_STDIN);
  peer.send(channel_frame(ISOGATE_RUNNER_DATA, 1, ISOGATE_RUNNER_STDOUT, 0, "taken"));
  peer.send(channel_frame(ISOGATE_RUNNER_DATA, 1, ISOGATE_RUNNER_STDERR, 0, "said"));
  peer.send(channel_frame(ISOGATE_RUNNER_END, 1, ISOGATE_RUNNER_STDOUT, 0));
  peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
  EXPECT_EQ(out.read_all(), "taken");
  EXPECT_EQ(err.read_all(), "said");
}

TEST(RunnerLinkExec, InputGoesAsFarAsThereIsCredit) {
  Peer peer;
  auto link = peer.link(0);
  Pipe in;
  Exec exec({"cat"});
  exec.in = in.reader;
  auto done = exec.start(*link);
  auto writing =
      std::async(std::launch::async, [&] { in.write(std::string(400 << 10, 'x')), in.close_writer(); });
  peer.expect(ISOGATE_RUNNER_EXEC);
  size_t got = 0;
  while (got < ISOGATE_RUNNER_WINDOW) got += peer.expect(ISOGATE_RUNNER_DATA).bytes().size();
  EXPECT_EQ(got, ISOGATE_RUNNER_WINDOW);
  EXPECT_TRUE(peer.is_silent(100));
  peer.send(channel_frame(ISOGATE_RUNNER_CREDIT, 1, ISOGATE_RUNNER_STDIN, 1 << 20));
  while (got < 400 << 10) got += peer.expect(ISOGATE_RUNNER_DATA).bytes().size();
  peer.expect(ISOGATE_RUNNER_END);
  writing.get();
  peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

TEST(RunnerLinkExec, ControlRecordsAreRelayedAndUnknownOnesSkipped) {
  Peer peer;
  auto link = peer.link();
  Pipe control;
  Exec exec({"top"});
  exec.control = control.reader;
  exec.flags = ISOGATE_EXEC_PTY;
  auto done = exec.start(*link);
  EXPECT_EQ(peer.expect(ISOGATE_RUNNER_EXEC).as<isogate_runner_exec>().flags, ISOGATE_RUNNER_EXEC_PTY);
  control.write(raw(isogate_control{99, 1, 2, 0}) + raw(isogate_control{ISOGATE_CONTROL_RESIZE, 30, 90, 0}));
  const auto heard = peer.expect(ISOGATE_RUNNER_CONTROL).as<isogate_control>();
  EXPECT_EQ(heard.type, ISOGATE_CONTROL_RESIZE);
  EXPECT_EQ(heard.b, 90u);
  control.close_writer();
  EXPECT_TRUE(peer.is_silent(20));
  peer.send(result_frame(1, success()));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

TEST(RunnerLinkExec, LimitsAreSentWithTheWordThatTheyMayBeSampled) {
  Peer peer;
  auto link = peer.link();
  for (const uint32_t sampled : {0u, 1u}) {
    Exec exec({"true"});
    exec.limits = {{ISOGATE_LIMIT_PIDS, 0, 7}, {ISOGATE_LIMIT_MEMORY_BYTES, 0, 1 << 20}};
    if (sampled != 0) exec.flags = ISOGATE_EXEC_LIMITS_SAMPLED;
    auto done = exec.start(*link);
    const Heard heard = peer.expect(ISOGATE_RUNNER_EXEC);
    const std::string_view rest = std::string_view(heard.payload).substr(sizeof(isogate_runner_exec));
    const isogate_runner_limits head{2, sampled};
    const isogate_runner_limit list[] = {{ISOGATE_LIMIT_PIDS, 0, 7},
                                         {ISOGATE_LIMIT_MEMORY_BYTES, 0, 1 << 20}};
    const std::string expected = raw(head) + raw(list);
    EXPECT_EQ(heard.as<isogate_runner_exec>().flags, ISOGATE_RUNNER_EXEC_LIMITS);
    EXPECT_EQ(rest.substr(0, expected.size()), expected);
    isogate_runner_result ended = success();
    ended.exec_flags = ISOGATE_RESULT_PIDS_EXCEEDED;
    ended.term_signal = 9;
    peer.send(result_frame(heard.head.stream, ended));
    EXPECT_EQ(done.get().exec.flags, ISOGATE_RESULT_PIDS_EXCEEDED);
  }
}

TEST(RunnerLinkExec, WhatCannotBeDoneIsRefusedBeforeItIsSent) {
  Peer peer;
  auto link = peer.link(ISOGATE_RUNNER_HAS_DESCRIPTORS);
  const auto refused = [&](isogate_status status, const std::function<void(Exec&)>& change) {
    Exec exec({"true"});
    change(exec);
    const Outcome outcome = exec.run(*link);
    EXPECT_EQ(outcome.status, status) << outcome.message;
  };
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.limits = {{ISOGATE_LIMIT_PIDS, 0, 0}}; });
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.limits.assign(257, {ISOGATE_LIMIT_PIDS, 0, 3}); });
  refused(ISOGATE_UNSUPPORTED, [](Exec& e) { e.flags = ISOGATE_EXEC_PTY; });
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.flags = 1u << 9; });
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.argv.clear(); });
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.cwd = std::string("a\0b", 3); });
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.user = std::string(5 << 20, 'x'); });
  refused(ISOGATE_INVALID_ARGUMENT, [](Exec& e) { e.argv[0].len = UINT64_MAX; });
  refused(ISOGATE_CANCELLED, [](Exec& e) { e.ask.cancel(); });
  EXPECT_TRUE(peer.is_silent(20));
  EXPECT_TRUE(link->alive());
}

TEST(RunnerLinkExec, AFailureOfTheRunnerIsReportedSanitized) {
  Peer peer;
  auto link = peer.link();
  const auto answer = [&](int32_t status, std::string_view message) {
    const Exec exec({"true"});
    auto done = exec.start(*link);
    auto said = success();
    said.status = status;
    said.os_errno = -7;
    peer.send(result_frame(peer.expect(ISOGATE_RUNNER_EXEC).head.stream, said, message));
    return done.get();
  };
  const Outcome outcome = answer(ISOGATE_NOT_FOUND, "no \xff\xc0\x80 user\n\x1b[31m `\xc3\xa9` \xe2\x80\xae");
  EXPECT_EQ(outcome.status, ISOGATE_NOT_FOUND);
  EXPECT_EQ(outcome.message, "no ??? user??[31m `\xc3\xa9` ?");
  for (const int32_t unknown : {4711, -1, ISOGATE_SANDBOX_LOST}) {
    EXPECT_EQ(answer(unknown, "x").status, ISOGATE_LOST) << unknown << ": it may have run";
  }
  EXPECT_TRUE(link->alive());
}

TEST(RunnerLinkExec, ManyEndInAnyOrderFromManyThreads) {
  Peer peer;
  auto link = peer.link();
  constexpr int kThreads = 16, kEach = 100;
  std::vector<std::future<int>> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.push_back(std::async(std::launch::async, [&] {
      int good = 0;
      for (int k = 0; k < kEach; ++k) {
        const Outcome outcome = Exec({"true"}).run(*link);
        good += outcome.status == ISOGATE_OK && outcome.exec.exit_code == 42;
      }
      return good;
    }));
  auto said = success();
  said.exit_code = 42;
  std::vector<uint32_t> open;
  uint32_t last = 0;
  for (int answered = 0; answered < kThreads * kEach;) {
    while (open.empty() || !peer.is_silent(0)) {
      open.push_back(peer.expect(ISOGATE_RUNNER_EXEC).head.stream);
      EXPECT_GT(open.back(), last);
      last = open.back();
    }
    const size_t pick = static_cast<size_t>(answered * 7919) % open.size();
    peer.send(result_frame(open[pick], said));
    open.erase(open.begin() + static_cast<ptrdiff_t>(pick));
    ++answered;
  }
  for (auto& thread : threads) EXPECT_EQ(thread.get(), kEach);
}

TEST(RunnerLinkExec, PingsAreAnsweredOrNot) {
  Peer peer;
  auto link = peer.link();
  auto first = std::async(std::launch::async, [&] { return link->ping(std::chrono::seconds(5)); });
  peer.send(frame(ISOGATE_RUNNER_PONG, 0, peer.expect(ISOGATE_RUNNER_PING).payload));
  EXPECT_TRUE(first.get());
  EXPECT_FALSE(link->ping(std::chrono::milliseconds(30)));
  peer.send(frame(ISOGATE_RUNNER_PONG, 0, peer.expect(ISOGATE_RUNNER_PING).payload));  // late, and no fault
  auto third = std::async(std::launch::async, [&] { return link->ping(std::chrono::seconds(5)); });
  peer.send(frame(ISOGATE_RUNNER_PONG, 0, peer.expect(ISOGATE_RUNNER_PING).payload));
  EXPECT_TRUE(third.get());
}

}  // namespace
}  // namespace isogate::testing
