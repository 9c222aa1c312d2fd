// File verbs: what is sent, when a body counts as complete, and which parts of a response are trusted.
#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "calls.h"
#include "peer.h"

namespace isogate::testing {
namespace {

using namespace std::chrono_literals;

isogate_runner_result file_of(uint64_t size) {
  auto said = success();
  said.entry_type = ISOGATE_ENTRY_REGULAR;
  said.entry_mode = 0100644;
  said.entry_size = size;
  return said;
}

struct Files {  // one call of each kind, against one peer
  explicit Files(uint32_t flags = 0) : link(peer.link(flags)) {}
  std::future<Outcome> read(int fd, uint64_t offset = 0, uint64_t limit = UINT64_MAX) {
    return later([this, fd, offset, limit](Outcome& outcome) {
      auto request = file_request("f", fd);
      request.offset = offset;
      request.limit = limit;
      link->read(ask.call, request, outcome.entry);
    });
  }
  std::future<Outcome> write(int fd, int complete_fd) {
    return later([this, fd, complete_fd](Outcome& outcome) {
      auto request = file_request("f", fd);
      request.complete_fd = complete_fd;
      outcome.written = link->write(ask.call, request);
    });
  }
  std::future<Outcome> watch(int fd) {
    return later([this, fd](Outcome&) { link->watch(ask.call, file_request("d", fd)); });
  }
  std::future<Outcome> stat() {
    return later([this](Outcome& outcome) { link->stat(ask.call, file_request("f"), outcome.entry); });
  }
  void say(std::string_view bytes) {
    peer.send(channel_frame(ISOGATE_RUNNER_DATA, stream(), ISOGATE_RUNNER_STDOUT, 0, bytes));
  }
  uint32_t stream() { return heard.head.stream; }
  isogate_runner_file asked() {
    heard = peer.expect(ISOGATE_RUNNER_FILE);
    return heard.as<isogate_runner_file>();
  }
  void answer(const isogate_runner_result& said) { peer.send(result_frame(stream(), said)); }

  Ask ask;
  Peer peer;
  std::shared_ptr<sdk::RunnerLink> link;
  Heard heard;
};

TEST(RunnerLinkFiles, AReadBringsTheBytesAndTheEntry) {
  Files files;
  Pipe out;
  auto done = files.read(out.writer, 2, 7);
  const auto asked = files.asked();
  EXPECT_EQ(asked.verb, ISOGATE_RUNNER_READ);
  EXPECT_EQ(asked.offset, 2u);
  EXPECT_EQ(asked.limit, 7u);
  files.say("cont");
  files.say("ent");
  files.answer(file_of(100));
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.entry.size, 100u);
  EXPECT_EQ(outcome.entry.mode, 0644u);
  EXPECT_EQ(out.read_all(), "content");
}

// Beyond what the pipes of a user may hold together, each new one holds a page or two.
TEST(RunnerLinkFiles, ATextIsReadWhereNewPipesAreSmall) {
  constexpr int kNotTried = 77;
  constexpr uid_t kUser = 64'321;
  const std::string text(16384, 'x');
  Files files;
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(30);  // ends a wait for ever
    const auto try_it = [&]() noexcept {
      std::vector<std::unique_ptr<Pipe>> pipes;
      if (::setresuid(kUser, kUser, kUser) != 0) return kNotTried;
      do pipes.push_back(std::make_unique<Pipe>());
      while (pipes.size() < 200 && ::fcntl(pipes.back()->writer, F_SETPIPE_SZ, 1 << 20) > 0);
      if (const Pipe small; ::fcntl(small.writer, F_GETPIPE_SZ) >= 16384) return kNotTried;
      return sdk::read_text(*files.link, files.ask.call, "f") == text ? 0 : 1;
    };
    const int result = try_it();
    files.link->close("it is over");
    ::_exit(result);
  }
  files.heard = files.peer.hear();
  if (files.heard.head.type == ISOGATE_RUNNER_FILE) {
    files.say(text);
    files.answer(file_of(text.size()));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == kNotTried)
    GTEST_SKIP() << "pipes cannot be made small here";
  EXPECT_EQ(status, 0);
}

TEST(RunnerLinkFiles, AWatchBringsBytesUntilItIsCancelled) {
  Files files;
  Pipe out;
  auto done = files.watch(out.writer);
  EXPECT_EQ(files.asked().verb, ISOGATE_RUNNER_WATCH);
  files.say("some rec");
  EXPECT_EQ(out.read(8), "some rec");
  files.ask.cancel();
  EXPECT_EQ(files.peer.expect(ISOGATE_RUNNER_CANCEL).head.stream, files.stream());
  auto said = success();
  said.status = ISOGATE_CANCELLED;
  files.answer(said);
  EXPECT_EQ(done.get().status, ISOGATE_CANCELLED);
  EXPECT_TRUE(files.link->alive());
}

// The changes since then are not known: it is not started again on another runner.
TEST(RunnerLinkFiles, AWatchThatIsLostIsNotUnavailable) {
  Files files;
  Pipe out;
  auto done = files.watch(out.writer);
  files.asked();
  files.peer.close();
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_IO) << outcome.message;
  EXPECT_EQ(files.watch(out.writer).get().status, ISOGATE_UNAVAILABLE) << "nothing was sent";
}

// Repeated into the same descriptor, the first part would come twice.
TEST(RunnerLinkFiles, AReadIsRepeatableUntilSomethingMayHaveCome) {
  const auto lost = [](uint32_t flags, uint64_t limit, std::string_view came) {
    Files files(flags);
    Pipe out;
    auto done = files.read(out.writer, 0, limit);
    files.asked();
    if (!came.empty()) files.say(came);
    files.peer.close();
    const Outcome outcome = done.get();
    EXPECT_EQ(outcome.status, ISOGATE_UNAVAILABLE) << outcome.message;
    if (flags == 0) {
      EXPECT_EQ(out.read_all(), came);
    }
    return outcome;
  };
  EXPECT_FALSE(lost(0, 100, "").broke_off);
  EXPECT_TRUE(lost(0, 100, "cont").broke_off);
  EXPECT_TRUE(lost(kAble, 100, "").broke_off) << "the runner has the descriptor";
  EXPECT_FALSE(lost(kAble, 0, "").broke_off) << "it asks for no bytes";
}

TEST(RunnerLinkFiles, AReadThatWasNotSentIsRepeatable) {
  for (const uint32_t flags : {0u, kAble}) {
    Files files(flags);
    Pipe out;
    files.peer.close();
    const Outcome outcome = files.read(out.writer).get();
    EXPECT_EQ(outcome.status, ISOGATE_UNAVAILABLE) << outcome.message;
    EXPECT_FALSE(outcome.broke_off) << outcome.message;
  }
}

TEST(RunnerLinkFiles, AReadThatDoesNotComeWholeIsAnError) {
  Files files;
  Pipe out;
  auto done = files.read(out.writer);
  files.asked();
  files.say("cont");
  files.answer(file_of(100));
  EXPECT_EQ(done.get().status, ISOGATE_IO);
  EXPECT_TRUE(files.link->alive());
}

TEST(RunnerLinkFiles, NoMoreThanTheLimitIsPassedOn) {
  Files files;
  Pipe out;
  auto done = files.read(out.writer, 0, 3);
  files.asked();
  files.say("four");
  EXPECT_EQ(done.get().status, ISOGATE_IO);
  EXPECT_FALSE(files.link->alive());
  EXPECT_EQ(out.read_all(), "");
}

TEST(RunnerLinkFiles, AReaderThatHasGoneCancelsTheRead) {
  Files files;
  Pipe out;
  auto done = files.read(out.writer);
  files.asked();
  out.close_reader();
  files.say("content");
  files.peer.expect(ISOGATE_RUNNER_CANCEL);
  files.answer(file_of(7));
  EXPECT_EQ(done.get().status, ISOGATE_CANCELLED);
  EXPECT_TRUE(files.link->alive());
}

TEST(RunnerLinkFiles, WhatNoFileHasIsNotBelieved) {
  const std::vector<std::function<void(isogate_runner_result&)>> changes = {
      [](auto& said) { said.entry_size = 1ull << 63; }, [](auto& said) { said.entry_type = 0; },
      [](auto& said) { said.entry_type = 5; }};
  for (const auto& change : changes) {
    Files files;
    auto done = files.stat();
    files.asked();
    auto said = file_of(3);
    change(said);
    files.answer(said);
    EXPECT_EQ(done.get().status, ISOGATE_IO);
    EXPECT_FALSE(files.link->alive());
  }
}

TEST(RunnerLinkFiles, UnknownFlagsAndImpossiblePathsAreRefusedHere) {
  Files files;
  const auto status_of = [&](const std::function<void(isogate_file_request&)>& change) {
    auto request = file_request("f");
    change(request);
    return outcome_of([&](Outcome&) { files.link->mkdir(files.ask.call, request); }).status;
  };
  const std::string long_path(70000, 'x');
  EXPECT_EQ(status_of([](auto& r) { r.flags = 1u << 20; }), ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](auto& r) { r.scope = 2; }), ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](auto& r) { r.mode = 04755; }), ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([](auto& r) { r.path = sdk::str(std::string_view("a\0b", 3)); }),
            ISOGATE_INVALID_ARGUMENT);
  EXPECT_EQ(status_of([&](auto& r) { r.path = sdk::str(long_path); }), ISOGATE_INVALID_ARGUMENT);
  EXPECT_TRUE(files.peer.is_silent(20));
}

// With and without descriptors: the body is in the pipe and its end is seen; `complete` decides.
class RunnerLinkBody : public ::testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { ASSERT_GE(complete, 0); }
  void TearDown() override { ::close(complete); }
  void hear_body(std::string_view bytes) {
    if (GetParam() == 0) {
      EXPECT_EQ(files.peer.expect(ISOGATE_RUNNER_DATA).bytes(), bytes);
    } else {
      EXPECT_EQ(files.heard.head.flags, ISOGATE_RUNNER_WITH_DESCRIPTORS);
      ASSERT_EQ(files.heard.fds.size(), 1u);
    }
  }
  isogate_runner_result wrote(uint64_t bytes) {
    auto said = success();
    said.written = bytes;
    return said;
  }

  Files files{GetParam()};
  Pipe in;
  int complete = ::eventfd(0, EFD_CLOEXEC);
};

INSTANTIATE_TEST_SUITE_P(Ways, RunnerLinkBody, ::testing::Values(0u, kAble),
                         [](const auto& way) { return way.param == 0 ? "Frames" : "Descriptors"; });

TEST_P(RunnerLinkBody, IsWholeOnceItsSenderSaysSo) {
  auto done = files.write(in.reader, complete);
  EXPECT_EQ(files.asked().verb, ISOGATE_RUNNER_WRITE);
  in.write("body");
  hear_body("body");
  EXPECT_TRUE(files.peer.is_silent(30));
  ::eventfd_write(complete, 1);
  in.close_writer();
  EXPECT_EQ(files.peer.expect(ISOGATE_RUNNER_END).as<isogate_runner_channel>().channel, ISOGATE_RUNNER_STDIN);
  files.answer(wrote(4));
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_OK) << outcome.message;
  EXPECT_EQ(outcome.written, 4u);
}

TEST_P(RunnerLinkBody, OfASenderThatHasGoneIsCancelled) {
  auto done = files.write(in.reader, complete);
  files.asked();
  in.write("bo");
  hear_body("bo");
  in.close_writer();
  files.peer.expect(ISOGATE_RUNNER_CANCEL);
  auto said = success();
  said.status = ISOGATE_CANCELLED;
  files.answer(said);
  const Outcome outcome = done.get();
  EXPECT_EQ(outcome.status, ISOGATE_CANCELLED);
  EXPECT_NE(outcome.message.find("sender"), std::string::npos);
}

TEST_P(RunnerLinkBody, SaidToBeCommittedWithoutItsEndIsNotBelieved) {
  auto done = files.write(in.reader, complete);
  files.asked();
  in.close_writer();
  files.peer.expect(ISOGATE_RUNNER_CANCEL);
  files.answer(wrote(0));
  EXPECT_EQ(done.get().status, ISOGATE_IO);
  EXPECT_FALSE(files.link->alive());
}

TEST_P(RunnerLinkBody, EndsWithItsPipeWithoutAnotherMessage) {
  auto done = files.write(in.reader, 0);
  files.asked();
  in.write("body");
  hear_body("body");
  in.close_writer();
  files.peer.expect(ISOGATE_RUNNER_END);
  files.answer(wrote(4));
  EXPECT_EQ(done.get().status, ISOGATE_OK);
}

TEST_P(RunnerLinkBody, IsCancelledWithItsCall) {
  auto done = files.write(in.reader, complete);
  files.asked();
  files.ask.cancel();
  files.peer.expect(ISOGATE_RUNNER_CANCEL);
  auto said = success();
  said.status = ISOGATE_CANCELLED;
  files.answer(said);
  EXPECT_EQ(done.get().status, ISOGATE_CANCELLED);
}

TEST_P(RunnerLinkBody, OfWhatIsNoPipeGoesInFrames) {
  const int file = ::memfd_create("body", MFD_CLOEXEC);
  ASSERT_EQ(::pwrite(file, "body", 4, 0), 4);
  ::eventfd_write(complete, 1);
  auto done = files.write(file, complete);
  files.asked();
  EXPECT_EQ(files.heard.head.flags, 0u);
  EXPECT_EQ(files.peer.expect(ISOGATE_RUNNER_DATA).bytes(), "body");
  files.peer.expect(ISOGATE_RUNNER_END);
  files.answer(wrote(4));
  EXPECT_EQ(done.get().written, 4u);
  ::close(file);
}

}  // namespace
}  // namespace isogate::testing
