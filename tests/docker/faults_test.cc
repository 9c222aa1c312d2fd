// Engines that stop, die and restart: each test has its own.
#include <sys/eventfd.h>

#include <poll.h>

#include <chrono>
#include <csignal>
#include <thread>

#include "plugins/docker/client/engine.h"
#include "tests/docker/engines.h"

namespace isogate::docker {
namespace {

using Clock = std::chrono::steady_clock;

// Also on a machine that stands still for some seconds. What waits for the Engine takes a minute or more.
constexpr seconds kSoon{20};

// One for all tests of the suite.
class PrivateEngineTest : public testing::Test {
 protected:
  static void SetUpTestSuite() { engine_process = new PrivateEngine; }
  static void TearDownTestSuite() {
    delete engine_process;
    engine_process = nullptr;
  }
  void SetUp() override {
    if (!engine_process->obstacle().empty()) GTEST_SKIP() << engine_process->obstacle();
    engine_ = std::make_unique<Engine>(parse_address(engine_process->address(), "the test"));
  }
  std::string run() {
    const Json body{{"Image", "isogate-test:small"},
                    {"Cmd", {"sleep", "600"}},
                    {"HostConfig", {{"NetworkMode", "none"}}}};
    const std::string id = engine_->create_container(new_name(), body, usual());
    engine_->start(id, usual());
    return id;
  }
  std::unique_ptr<EngineStream> start_cat(const std::string& id) {
    const Json body{{"Cmd", {"cat"}}, {"AttachStdin", true}, {"AttachStdout", true}, {"AttachStderr", true}};
    return engine_->exec_start(engine_->exec_create(id, body, usual()), usual());
  }
  // It failed within `most`, and for this reason.
  static void expect_failure(const std::function<void()>& work, isogate_status status, milliseconds most) {
    const auto begin = Clock::now();
    const Failure failure = failure_of(work);
    EXPECT_EQ(failure.status, status) << failure.message;
    EXPECT_LT(Clock::now() - begin, most) << failure.message;
  }

  static PrivateEngine* engine_process;
  std::unique_ptr<Engine> engine_;
};

PrivateEngine* PrivateEngineTest::engine_process = nullptr;

TEST_F(PrivateEngineTest, AStoppedOneBlocksNobody) {
  const std::string id = run();
  const auto events = engine_->events(Json::object(), "", usual());
  engine_process->signal(SIGSTOP);
  expect_failure([&] { engine_->inspect(id, Budget(milliseconds(300))); }, ISOGATE_UNAVAILABLE, kSoon);
  expect_failure([&] { engine_->ping(Budget(milliseconds(300))); }, ISOGATE_UNAVAILABLE, kSoon);
  expect_failure([&] { engine_->start(id, Budget(milliseconds(300))); }, ISOGATE_UNAVAILABLE, kSoon);
  expect_failure([&] { events->next(Budget(milliseconds(300))); }, ISOGATE_UNAVAILABLE, kSoon);

  Fd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  std::thread canceller([&] {
    std::this_thread::sleep_for(milliseconds(100));
    signal_event(cancel.get());
  });
  const Budget cancellable(seconds(60), cancel.get());
  expect_failure([&] { engine_->inspect(id, cancellable); }, ISOGATE_CANCELLED, kSoon);
  canceller.join();
  expect_failure([&] { engine_->remove(id, cancellable); }, ISOGATE_CANCELLED, kSoon);
  // An archive that the Engine does not read.
  const auto endless = [](const ByteSink& sink) {
    for (;;) sink(std::string(1 << 20, 'x'));
  };
  expect_failure([&] { engine_->put_archive(id, "/", endless, Budget(milliseconds(300))); },
                 ISOGATE_UNAVAILABLE, kSoon);
  engine_process->signal(SIGCONT);
  EXPECT_EQ(engine_->inspect(id, usual())["Id"], id);
}

// Its queue of connections is full, so that not even connecting works.
TEST_F(PrivateEngineTest, AStoppedOneWithAFullQueueBlocksNobody) {
  engine_process->signal(SIGSTOP);
  std::vector<std::unique_ptr<net::Transport>> waiting;
  const auto fill = [&] {
    for (int i = 0; i < 10'000; ++i)
      waiting.push_back(net::Transport::connect(target_of(engine_->address()), Budget(milliseconds(200))));
  };
  expect_failure(fill, ISOGATE_UNAVAILABLE, seconds(20));
  Fd cancel(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  signal_event(cancel.get());
  expect_failure([&] { engine_->ping(Budget(milliseconds(300))); }, ISOGATE_UNAVAILABLE, kSoon);
  expect_failure([&] { engine_->ping(Budget(seconds(60), cancel.get())); }, ISOGATE_CANCELLED, kSoon);
  waiting.clear();
  engine_process->signal(SIGCONT);
  engine_->ping(usual());
}

TEST_F(PrivateEngineTest, OneThatDiesIsNoticedAtOnceAndFoundAgain) {
  const std::string id = run();
  const auto events = engine_->events(Json::object(), "", usual());
  const auto stream = start_cat(id);
  write_all(*stream, "still here\n");
  const Budget budget(seconds(10));
  ASSERT_EQ(budget.wait(stream->fd(), POLLIN), Budget::Outcome::kReady);

  engine_process->kill();
  const auto follow = [&] {
    for (;;) events->next(usual());
  };
  expect_failure(follow, ISOGATE_UNAVAILABLE, kSoon);
  expect_failure([&] { engine_->inspect(id, usual()); }, ISOGATE_UNAVAILABLE, kSoon);
  EXPECT_EQ(read_all(*stream, kSoon), "still here\n");

  engine_process->start_again();
  EXPECT_EQ(engine_->inspect(id, usual())["Id"], id);
  engine_->remove(id, usual());
}

}  // namespace
}  // namespace isogate::docker
