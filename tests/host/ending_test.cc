#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "gateway/host/server.h"
#include "tests/host/host_process.h"

namespace isogate {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;

class Ending : public testing::Test {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    host_ = std::make_unique<HostProcess>(fixture_backend("good"));
    ASSERT_NO_FATAL_FAILURE(host_->expect_ready());
    ASSERT_EQ(host_->open("one").status, ISOGATE_OK);
    ASSERT_EQ(host_->open("two", kOtherBox).status, ISOGATE_OK);
    for (int i = 0; i < 10; ++i) running_.push_back(host_->start_exec({"sleep", "600000"}));
    ASSERT_TRUE(host_->await_running(10));
  }

  void expect_end(const std::string& mode) {
    EXPECT_EQ(host_->exit_code(), 0);
    EXPECT_THAT(host_->trace(),
                AllOf(HasSubstr("close one " + mode), HasSubstr("close two " + mode), EndsWith("destroy\n")));
  }

  std::unique_ptr<HostProcess> host_;
  std::vector<uint64_t> running_;
};

TEST_F(Ending, ByTheFrontCancelsEverythingAndDetaches) {
  host_->end_front();
  expect_end("0");
}

TEST_F(Ending, ByTheSupervisorCancelsEverythingAndDetaches) {
  host_->end_supervisor();
  expect_end("0");
}

TEST_F(Ending, OnStopAnswersEveryCallAndStopsTheSandboxes) {
  host_->tell(R"({"type":"stop","mode":"stop"})");
  for (uint64_t id : running_) {
    auto reply = host_->reply_to(id);
    ASSERT_TRUE(reply.has_value());
    EXPECT_EQ(std::get<isogate_exec_result>(reply->value).flags, ISOGATE_RESULT_KILLED);
  }
  EXPECT_TRUE(host_->channel_ended());
  expect_end("1");
}

TEST_F(Ending, ByTheFrontStopsTheSandboxesOfAGatewayThatEnds) {
  host_->tell(R"({"type":"mode","mode":"stop"})");
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK);
  host_->end_front();
  expect_end("1");
}

TEST_F(Ending, OnStopWithDetachLeavesTheSandboxes) {
  host_->tell(R"({"type":"stop","mode":"detach"})");
  expect_end("0");
}

TEST_F(Ending, WaitsForACallThatTakesItsTime) {
  host_->start_exec({"stubborn", "1000"});
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  host_->end_front();
  expect_end("0");
}

TEST_F(Ending, ComesThoughThePluginHangsInDestroy) {
  BackendConfig backend = fixture_backend("good");
  backend.config_json = R"({"hangs":true})";
  HostProcess host(backend);
  ASSERT_NO_FATAL_FAILURE(host.expect_ready());
  host.end_front();
  EXPECT_EQ(host.exit_code(), -SIGALRM);
}

TEST_F(Ending, DestroysNoBackendWithASandboxThatCouldNotBeClosed) {
  for (const char* mode : {"stop", "detach"}) {
    HostProcess host(fixture_backend("good"));
    ASSERT_NO_FATAL_FAILURE(host.expect_ready());
    ASSERT_EQ(host.open("sticky").status, ISOGATE_OK);
    host.tell(R"({"type":"stop","mode":")" + std::string(mode) + "\"}");
    EXPECT_EQ(host.exit_code(), std::string(mode) == "stop" ? 1 : 0);
    EXPECT_EQ(host.trace(), "");
  }
}

TEST_F(Ending, StopsWhatClaimedTooMuchAndCouldNotBeClosedThen) {
  for (const char* mode : {"stop", "detach"}) {
    HostProcess host(fixture_backend("good"));
    ASSERT_NO_FATAL_FAILURE(host.expect_ready());
    ASSERT_EQ(host.open("sticky-liar").status, ISOGATE_LOST);
    host.tell(R"({"type":"stop","mode":")" + std::string(mode) + "\"}");
    EXPECT_EQ(host.exit_code(), 0);
    EXPECT_EQ(host.trace(), "close sticky-liar 1\ndestroy\n") << mode;
  }
}

// Its call is about to be refused, and nobody may read from it.
TEST(CallsInFlight, AreCancelledThoughOnesDescriptorIsNoEvent) {
  auto pipe = make_pipe(NonBlocking::kWrite);
  ASSERT_TRUE(pipe.ok());
  const std::string page(4096, 'x');
  while (::write(pipe->write.get(), page.data(), page.size()) > 0) continue;
  ASSERT_EQ(::fcntl(pipe->write.get(), F_SETFL, O_WRONLY), 0);  // it blocks
  auto event = make_event();
  InFlight in_flight;
  const InFlight::Call wrong(in_flight, pipe->write.get(), "read"), right(in_flight, event->get(), "exec");
  in_flight.cancel_all();
  EXPECT_TRUE(is_signalled(event->get()));
}

TEST(CallsInFlight, NameEachOfTheirFunctionsOnce) {
  InFlight in_flight;
  EXPECT_EQ(in_flight.functions(), "");
  const InFlight::Call one(in_flight, -1, "read"), two(in_flight, -1, "exec");
  {
    const InFlight::Call three(in_flight, -1, "exec"), four(in_flight, -1, "stat");
    EXPECT_EQ(in_flight.functions(), "exec, read, stat");
  }
  EXPECT_EQ(in_flight.functions(), "exec, read");
}

TEST(AHostWhoseCallsDoNotEnd, SaysOfWhichBackendAndInWhichFunctions) {
  ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
  testing::internal::CaptureStderr();
  {
    HostProcess host(fixture_backend("good"));
    host.expect_ready();
    EXPECT_EQ(host.open("one").status, ISOGATE_OK);
    host.start_exec({"stubborn", "600000"});
    EXPECT_TRUE(host.await_running(1));
    host.end_front();
    EXPECT_EQ(host.exit_code(), 1);
  }
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr(R"("event":"cancelled_calls_stuck","backend":"tested","functions":"exec","threads":)"));
}

TEST_F(Ending, IsNotForAMessageThatItDoesNotKnow) {
  host_->tell(R"({"type":"something"})");
  host_->tell("rubbish");
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK);
}

TEST_F(Ending, IsNotForASignalOfTheTerminal) {
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::kill(host_->pid(), signal);
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK);
}

class Growth : public testing::Test {
 protected:
  void SetUp() override {
    ISOGATE_NEEDS_TRUSTED_BUILD_DIR();
    host_ = std::make_unique<HostProcess>(fixture_backend("good"));
    ASSERT_NO_FATAL_FAILURE(host_->expect_ready());
    ASSERT_EQ(host_->open().status, ISOGATE_OK);
  }
  int descriptors() {
    int count = 0;
    std::error_code error;
    for (auto it =
             std::filesystem::directory_iterator("/proc/" + std::to_string(host_->pid()) + "/fd", error);
         !error && it != std::filesystem::directory_iterator(); ++it)
      ++count;
    return count;
  }
  std::unique_ptr<HostProcess> host_;
};

TEST_F(Growth, OfThreadsFollowsTheCallsAndEndsWithThem) {
  constexpr int kCalls = 600;
  auto event = make_event();
  std::vector<uint64_t> ids;
  for (int i = 0; i < kCalls; ++i) ids.push_back(host_->start_exec({"sleep", "600000"}, event->get()));
  EXPECT_TRUE(host_->await_running(kCalls));
  EXPECT_GE(host_->status_number("Threads"), kCalls);
  signal_event(event->get());
  for (uint64_t id : ids) ASSERT_TRUE(host_->reply_to(id).has_value());
  for (int i = 0; i < 300 && host_->status_number("Threads") > 8; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_LE(host_->status_number("Threads"), 8);
  EXPECT_EQ(host_->exec({"exit", "0"}).status, ISOGATE_OK);
}

TEST_F(Growth, OfMemoryAndDescriptorsIsNone) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer keeps freed memory";
#endif
  std::string output;
  auto work = [&](int rounds) {
    for (int i = 0; i < rounds; ++i) {
      host_->exec({"exit", "1"}, &output);
      host_->exec({"fail", "9"});
      host_->file(ipc::FileVerb::kStat, "missing");
      host_->file(ipc::FileVerb::kList, "100", &output);
      host_->open();
    }
  };
  work(400);
  long before = host_->status_number("VmRSS");
  int open_before = descriptors();
  work(2000);  // five calls each: 10,000
  EXPECT_LE(host_->status_number("VmRSS"), before + 1024);
  EXPECT_EQ(descriptors(), open_before);
}

}  // namespace
}  // namespace isogate
