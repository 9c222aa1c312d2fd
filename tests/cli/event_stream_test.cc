#include "gateway/cli/event_stream.h"

#include <gtest/gtest.h>

namespace isogate::cli {
namespace {

struct Seen {
  std::string out, err;
  int lines = 0;
};

EventStream stream_into(Seen& seen) {
  return EventStream({[&seen](bool to_stderr, std::string_view bytes, bool) {
                        (to_stderr ? seen.err : seen.out) += bytes;
                        return Result<void>();
                      },
                      [&seen](std::string_view) {
                        ++seen.lines;
                        return Result<void>();
                      }});
}

const std::string kStart = R"({"event":"start","exec_id":"0","backend":"b","isolation":"none"})"
                           "\n";
const std::string kExit = R"({"event":"exit","outcome":"exited","exit_code":3,"truncated":false})"
                          "\n";

TEST(EventStream, GivesBytesAndTheEnd) {
  Seen seen;
  EventStream stream = stream_into(seen);
  ASSERT_TRUE(stream
                  .feed(kStart + R"({"event":"stdout","data":"hi\n","encoding":"utf-8"})" + "\n" +
                        R"({"event":"ping"})" + "\n" +
                        R"({"event":"stderr","data":"/w==","encoding":"base64"})" + "\n" + kExit)
                  .ok());
  auto end = stream.finish();
  ASSERT_TRUE(end.ok()) << end.error().message;
  EXPECT_EQ(end->outcome, "exited");
  EXPECT_EQ(end->exit_code, 3);
  EXPECT_EQ(seen.out, "hi\n");
  EXPECT_EQ(seen.err, "\xff");
  EXPECT_EQ(seen.lines, 5);
}

TEST(EventStream, CutAnywhereIsTheSame) {
  std::string whole = kStart + R"({"event":"stdout","data":"grün","encoding":"utf-8"})" + "\n" + kExit;
  for (size_t step = 1; step < 20; ++step) {
    Seen seen;
    EventStream stream = stream_into(seen);
    for (size_t at = 0; at < whole.size(); at += step)
      ASSERT_TRUE(stream.feed(std::string_view(whole).substr(at, step)).ok());
    ASSERT_TRUE(stream.finish().ok()) << step;
    EXPECT_EQ(seen.out, "grün") << step;
  }
}

TEST(EventStream, WithoutAnExitEventIsAnError) {
  Seen seen;
  EventStream stream = stream_into(seen);
  ASSERT_TRUE(stream.feed(kStart + R"({"event":"stdout","data":"hi","encoding":"utf-8"})" + "\n").ok());
  auto end = stream.finish();
  ASSERT_FALSE(end.ok());
  EXPECT_EQ(end.error().status, ISOGATE_LOST);
  EXPECT_EQ(seen.out, "hi");
}

TEST(EventStream, OutputMayEndBeforeItsExec) {
  Seen seen;
  EventStream stream = stream_into(seen);
  ASSERT_TRUE(stream
                  .feed(R"({"event":"stdout","offset":7,"data":"hi","encoding":"utf-8"})"
                        "\n")
                  .ok());
  EXPECT_EQ(stream.next_offset(false), 9u);
  EXPECT_EQ(stream.next_offset(true), 0u);
  auto open = stream.pause();
  ASSERT_TRUE(open.ok());
  EXPECT_FALSE(*open);
  ASSERT_TRUE(stream.feed("{\"event\"").ok());
  EXPECT_FALSE(stream.pause().ok());
}

TEST(EventStream, OneThatWasNotStartedHasAReason) {
  auto end = parse_exec_end(
      R"({"outcome":"not_started","exit_code":null,"error":{"code":"unsupported","message":"no shell"}})");
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->exit_code.has_value());
  EXPECT_EQ(end->reason, "no shell");
  EXPECT_EQ(end->text(), "not_started");
}

TEST(EventStream, AnEndAsText) {
  EXPECT_EQ(parse_exec_end(R"({"outcome":"exited","exit_code":0})")->text(), "exited 0");
  EXPECT_EQ(parse_exec_end(R"({"outcome":"signaled","exit_code":143,"signal":"SIGTERM"})")->text(),
            "signaled SIGTERM");
  EXPECT_EQ(parse_exec_end(R"({"outcome":"timed_out","exit_code":124,"signal":null})")->text(), "timed_out");
}

TEST(EventStream, NothingAtAllIsAnError) {
  Seen seen;
  EXPECT_FALSE(stream_into(seen).finish().ok());
}

TEST(EventStream, EveryCutOfTheExitEventIsAnError) {
  std::string whole = kStart + kExit;
  for (size_t size = 0; size < whole.size(); ++size) {
    Seen seen;
    EventStream stream = stream_into(seen);
    ASSERT_TRUE(stream.feed(whole.substr(0, size)).ok()) << size;
    EXPECT_FALSE(stream.finish().ok()) << size;
  }
}

TEST(EventStream, RefusesInvalidEvents) {
  const char* lines[] = {
      "x",
      "[]",
      "1",
      "{}",
      R"({"event":1})",
      R"({"event":"stdout"})",
      R"({"event":"stdout","data":1,"encoding":"utf-8"})",
      R"({"event":"stdout","data":"x"})",
      R"({"event":"stdout","data":"x","encoding":"latin-1"})",
      R"({"event":"stdout","data":"x","encoding":"base64"})",
      R"({"event":"exit"})",
      R"({"event":"exit","outcome":"fine","exit_code":0})",
      R"({"event":"exit","outcome":"exited","exit_code":null})",
      R"({"event":"exit","outcome":"exited","exit_code":"0"})",
      R"({"event":"exit","outcome":"exited","exit_code":256})",
      R"({"event":"exit","outcome":"exited","exit_code":-1})",
      "{\"event\":\"stdout\",\"data\":\"\xff\",\"encoding\":\"utf-8\"}",
  };
  for (const char* line : lines) {
    Seen seen;
    EventStream stream = stream_into(seen);
    auto fed = stream.feed(std::string(line) + "\n");
    ASSERT_FALSE(fed.ok()) << line;
    EXPECT_EQ(fed.error().status, ISOGATE_LOST) << line;
  }
}

TEST(EventStream, NothingMayFollowTheExitEvent) {
  Seen seen;
  EventStream stream = stream_into(seen);
  EXPECT_FALSE(stream.feed(kExit + kExit).ok());
  EventStream tail = stream_into(seen);
  ASSERT_TRUE(tail.feed(kExit + "{\"eve").ok());
  EXPECT_FALSE(tail.finish().ok());
}

TEST(EventStream, UnknownEventsAreSkipped) {
  Seen seen;
  EventStream stream = stream_into(seen);
  ASSERT_TRUE(stream
                  .feed(R"({"event":"weather","sun":true})"
                        "\n" +
                        kExit)
                  .ok());
  EXPECT_TRUE(stream.finish().ok());
}

TEST(EventStream, AnUnknownOutcomeHasNoExitCode) {
  Seen seen;
  EventStream stream = stream_into(seen);
  ASSERT_TRUE(stream
                  .feed(R"({"event":"exit","outcome":"unknown","exit_code":0,"reason":"it ended"})"
                        "\n")
                  .ok());
  auto end = stream.finish();
  ASSERT_TRUE(end.ok());
  EXPECT_FALSE(end->exit_code.has_value());
  EXPECT_EQ(end->reason, "it ended");
}

TEST(EventStream, AnEndlessLineIsRefused) {
  Seen seen;
  EventStream stream = stream_into(seen);
  std::string piece(1 << 20, 'x');
  bool refused = false;
  for (int i = 0; i < 18 && !refused; ++i) refused = !stream.feed(piece).ok();
  EXPECT_TRUE(refused);
}

TEST(EventStream, AHandlersErrorEndsIt) {
  EventStream stream(
      {[](bool, std::string_view, bool) -> Result<void> { return os_error("cannot write", ENOSPC); }, {}});
  auto fed = stream.feed(R"({"event":"stdout","data":"x","encoding":"utf-8"})"
                         "\n");
  ASSERT_FALSE(fed.ok());
  EXPECT_EQ(fed.error().os_errno, ENOSPC);
}

}  // namespace
}  // namespace isogate::cli
