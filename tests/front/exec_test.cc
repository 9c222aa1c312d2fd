#include "gateway/front/exec/exec.h"

#include <atomic>
#include <cstdlib>
#include <future>
#include <thread>

#include "gateway/front/app.h"
#include "gateway/front/base/own_fd.h"
#include "lib/clock.h"
#include "tests/front/fake_host.h"

namespace isogate::front {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;
using std::chrono::steady_clock;

class Nowhere final : public Output {
 public:
  asio::awaitable<void> started(const ExecAnswer&) override { co_return; }
  asio::awaitable<void> bytes(bool, std::string_view) override { co_return; }
  [[nodiscard]] bool full(bool) const override { return true; }
};

// Of one tenant, where one exec runs at a time.
class ExecTest : public testing::Test {
 protected:
  ExecTest() {
    auto pair = or_throw(ipc::make_socket_pair());
    host_ = std::make_unique<FakeHost>(std::move(pair.theirs));
    or_throw(app_.sandboxes.load());
    app_.backends.host_up("fake", {.generation = 1, .settings = 1}, std::move(pair.own));
    asio::co_spawn(io_, app_.backends.settled(10s), [this](const std::exception_ptr&) { io_.stop(); });
    io_.run();
    io_.restart();
  }
  ~ExecTest() override {
    over_ = true;
    app_.backends.reconfigure(Config());
    io_.restart();
    io_.run_for(1s);
    host_.reset();
    EXPECT_EQ(std::system(("rm -rf '" + directory_ + "'").c_str()), 0);
  }
  static std::string make_directory() {
    std::string name = testing::TempDir() + "isogate-exec-XXXXXX";
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    return name;
  }
  static Config config() {
    Config config = one_backend();
    config.limits.max_execs = 1;
    config.limits.exec_queue_timeout_sec = 3;
    return config;
  }
  // Execs of so many tenants wait for their start before any other. Each takes as long as a start may.
  void crowd_starts(int tenants) {
    StartWindow& window = *app_.backends.find("fake")->starts;
    window.resize(1);
    std::get<StartWindow::Slot>(window.enter("slow", {})).ended(100s);
    for (int i = 0; i < tenants; ++i) {
      auto answer = window.enter(std::to_string(i), [this](StartWindow::Slot slot) {
        if (!over_) held_.push_back(std::move(slot));
      });
      if (auto* slot = std::get_if<StartWindow::Slot>(&answer)) held_.push_back(std::move(*slot));
    }
  }
  static ExecSpec one(double timeout_sec = 60) {
    ExecSpec spec;
    spec.tenant = "tenant";
    spec.agent = "agent";
    spec.request_id = "request";
    spec.timeout_sec = timeout_sec;
    return spec;
  }
  // Why it was refused; none: it has ended, and answer_ is set.
  std::optional<ApiError> refusal_of(ExecSpec spec = one()) {
    std::optional<ApiError> refusal;
    answer_.reset();
    const auto work = [&]() -> asio::awaitable<void> {
      Nowhere output;
      Killer killer;
      ByteShare memory;
      try {
        answer_ = co_await run_exec(app_, spec, output, killer, memory);
      } catch (const ApiError& error) {
        refusal = error;
      }
    };
    asio::co_spawn(io_, work(), [this](const std::exception_ptr&) { io_.stop(); });
    io_.restart();
    io_.run_for(30s);
    return refusal;
  }

  const std::string directory_ = make_directory();
  asio::io_context io_;
  bool over_ = false;  // from here on nobody takes a slot
  std::vector<StartWindow::Slot> held_;
  App app_{io_.get_executor(), config(), std::move(*State::open(directory_ + "/front/state.db")),
           *Authenticator::make({}, "", {}), false};
  std::unique_ptr<FakeHost> host_;
  std::optional<ExecAnswer> answer_;
};

TEST_F(ExecTest, WaitsForItsPlaceAndItsStartNoLongerThanForOne) {
  auto place = app_.admission.admit("other", "of another", "fake", {});
  ASSERT_TRUE(std::holds_alternative<Admission::Ticket>(place));
  crowd_starts(60);
  Alarm late(io_.get_executor());
  late.set(2500ms, [&] { std::get<Admission::Ticket>(place).release(); });
  int ticks = 0;  // a process that is stopped meanwhile counts one for all of that time
  Alarm next(io_.get_executor());
  std::function<void()> tick;
  tick = [&] {
    ++ticks;
    next.set(100ms, tick);
  };
  next.set(100ms, tick);
  const auto began = steady_clock::now();
  const auto refusal = refusal_of();
  const auto took = steady_clock::now() - began;
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->code, Code::kRateLimited) << refusal->message;
  EXPECT_GE(took, 3s);
  EXPECT_LT(ticks, 45) << "it waited for each";
}

// A backend host that ends cancels its calls, too.
TEST_F(ExecTest, IsRefusedAndNotKilledWhereNobodyCancelledIt) {
  host_->exec = [](const ipc::ExecCall&) { return ISOGATE_CANCELLED; };
  const auto refusal = refusal_of();
  ASSERT_TRUE(refusal) << "it is answered as if it had been killed";
  EXPECT_EQ(refusal->code, Code::kBackendUnavailable) << refusal->message;
}

TEST_F(ExecTest, IsTimedOutThoughItsBackendEndsItBeforeTheGatewayDoes) {
  std::promise<void> held;
  host_->exec = [&](const ipc::ExecCall& call) {
    const steady_clock::time_point deadline(std::chrono::nanoseconds(call.call.deadline_ns));
    // The front is busy until then, and finds the answer before its own timer.
    asio::post(io_, [this, &held, deadline] {
      held.set_value();
      std::this_thread::sleep_for(100ms);
      asio::post(io_, [deadline] { std::this_thread::sleep_until(deadline); });
    });
    held.get_future().wait();
    return ISOGATE_CANCELLED;
  };
  const auto refusal = refusal_of(one(0.5));
  EXPECT_FALSE(refusal) << refusal->message;
  ASSERT_TRUE(answer_);
  EXPECT_EQ(answer_->outcome, Outcome::kTimedOut);
}

TEST_F(ExecTest, HasItsFirstDeadlineWhenItIsRejoined) {
  std::atomic<int64_t> deadline_ns{0};
  host_->exec = [&](const ipc::ExecCall& call) {
    deadline_ns = call.call.deadline_ns;
    return ISOGATE_CANCELLED;
  };
  ASSERT_TRUE(refusal_of()) << "its sandbox is open from here on";
  ExecSpec spec = one(0);
  spec.kept = std::make_shared<KeptEnds>();
  spec.kept->detach = or_throw(make_shared_event());
  spec.kept->input_end = or_throw(make_mark());
  spec.rejoin.emplace().exec_id = std::string(32, '0');
  spec.terms.deadline_ms = steady_date_ms() + 20'000;
  const int64_t expected = std::chrono::nanoseconds(steady_clock::now().time_since_epoch() + 20s).count();
  const auto refusal = refusal_of(std::move(spec));
  EXPECT_FALSE(refusal) << refusal->message;
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(answer_->goes_on);
  EXPECT_LT(std::abs(deadline_ns - expected), std::chrono::nanoseconds(5s).count());
}

// Where drain_timeout_sec is 0, both come at once.
TEST_F(ExecTest, IsNotKilledByTheStopThatLeavesItToItsBackend) {
  const auto ends = std::make_shared<KeptEnds>();
  ends->detach = or_throw(make_shared_event());
  ends->input_end = or_throw(make_mark());
  std::atomic<bool> killed{false};
  host_->exec = [&](const ipc::ExecCall& call) {
    if (call.keep == ipc::Keep::kNot) return ISOGATE_CANCELLED;
    asio::post(io_, [&] {
      ends->detached = true;
      signal_event(ends->detach.get());
      for (const auto& [id, sandbox] : app_.sandboxes.records.all()) sandbox->end_calls("the gateway stops");
    });
    EXPECT_TRUE(FakeHost::came(call.detach.get(), call.call));
    pollfd cancelled{call.call.cancel.get(), POLLIN, 0};
    killed = ::poll(&cancelled, 1, 500) != 0;
    return ISOGATE_LOST;
  };
  ASSERT_TRUE(refusal_of()) << "its sandbox is open from here on";
  ExecSpec spec = one(0);
  spec.kept = ends;
  spec.rejoin.emplace().exec_id = std::string(32, '0');
  spec.terms.deadline_ms = steady_date_ms() + 20'000;
  const auto refusal = refusal_of(std::move(spec));
  EXPECT_FALSE(refusal) << refusal->message;
  ASSERT_TRUE(answer_);
  EXPECT_TRUE(answer_->goes_on);
  EXPECT_FALSE(killed);
}

}  // namespace
}  // namespace isogate::front
