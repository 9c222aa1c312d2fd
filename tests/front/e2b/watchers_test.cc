#include "gateway/front/e2b/watchers.h"

#include "gateway/front/base/alarm.h"
#include "tests/front/fake_host.h"

namespace isogate::front::e2b {
namespace {

// Of a call that reads and writes nothing.
class Poll : public Exchange {
 public:
  Poll() {
    principal.tenant = "tenant";
    agent_param = "agent";
  }
  std::string_view header(std::string_view) const override { return {}; }
  bool has_header(std::string_view) const override { return false; }
  std::string_view method() const override { return {}; }
  std::string_view target() const override { return {}; }
  void each_header(const std::function<void(std::string_view, std::string_view)>&) const override {}
  BodyFraming body() const override { return {}; }
  Task<std::string> read_body(uint64_t) override { unused(); }
  Task<size_t> read_body_some(char*, size_t) override { unused(); }
  Task<size_t> read_body_to_pipe(PipeEnd&) override { unused(); }
  void stop_reading() override {}
  Task<void> send(unsigned, std::string_view, std::string_view, const Headers&) override { unused(); }
  Task<void> begin(unsigned, std::string_view, std::optional<uint64_t>, const Headers&) override { unused(); }
  Task<void> write(std::string_view) override { unused(); }
  Task<size_t> write_from_pipe(PipeEnd&, size_t) override { unused(); }
  Task<void> finish() override { unused(); }
  bool begun() const override { return false; }
  Task<std::unique_ptr<WebSocket>> upgrade(size_t) override { unused(); }
  Task<void> begin_proxied(unsigned, std::string_view, std::optional<uint64_t>, bool,
                           const Headers&) override {
    unused();
  }
  Task<void> switch_protocols(const Headers&) override { unused(); }
  Task<size_t> read_switched(char*, size_t) override { unused(); }
  Task<void> end_writing() override { unused(); }
  void abort() override {}
  bool closed() const override { return false; }
  Task<void> hold_back() override { unused(); }
  void count_bytes(uint64_t, uint64_t) override {}
  Killer& watch_client() override { unused(); }

 private:
  [[noreturn]] static void unused() { throw std::logic_error("a poll does not do that"); }
};

class WatchersTest : public OnFakeHost {
 protected:
  std::string keep(Watchers& watchers, Lease& lease, ByteShare memory) {
    auto watch = std::make_unique<Watch>(lease, FileTarget{{}, "request"});
    return watchers.keep(io_.get_executor(), "tenant", "agent", std::move(watch), std::move(memory));
  }
};

TEST_F(WatchersTest, OneThatNobodyAsksForIsForgottenWithoutAnother) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  ByteBudget budget;
  ByteShare memory(budget, "tenant");
  memory.hold(1000);
  Watchers watchers;
  keep(watchers, *lease, std::move(memory));
  const SandboxPtr sandbox = lease->sandbox;
  lease.reset();
  const auto now = std::chrono::steady_clock::now();
  watchers.tick(now + Watchers::kForgetAfter - std::chrono::minutes(1));
  EXPECT_EQ(sandbox->watches.size(), 1u);
  watchers.tick(now + Watchers::kForgetAfter + std::chrono::minutes(1));
  ASSERT_NO_THROW(run([&]() -> boost::asio::awaitable<void> {
    while (!sandbox->watches.empty() || budget.held() > 0)
      co_await sleep_for(io_.get_executor(), std::chrono::milliseconds(5));
  }()));
}

// Meanwhile the next host does not have the sandbox, so that nobody else could watch it.
TEST_F(WatchersTest, OneOfAReplacedHostIsOverWithTheLastCallThere) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  lease->channel->retire();
  const Watch watch(*lease, FileTarget{{}, "request"});
  EXPECT_EQ(watch.over(), std::nullopt);
  lease.reset();
  EXPECT_EQ(watch.over(), WatchEnd::kReloaded);
}

class EndedWatch : public WatchersTest, public testing::WithParamInterface<WatchEnd> {};

TEST_P(EndedWatch, IsReportedUnlessItsDirectoryIsGone) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  Watchers watchers;
  const std::string id = keep(watchers, *lease, ByteShare());
  lease->sandbox->end_watches(GetParam());
  for (int polls = 0; polls < 2; ++polls) {
    Poll poll;
    std::string refusal;
    const auto take = [&]() -> boost::asio::awaitable<void> {
      const auto events = co_await watchers.take(poll, id);
      EXPECT_TRUE(events.empty());
    };
    try {
      run(take());
    } catch (const std::runtime_error& error) {
      refusal = error.what();
    }
    const bool reported = refusal.find("watch again") != std::string::npos;
    EXPECT_EQ(reported, GetParam() != WatchEnd::kRemoved) << refusal;
  }
}
INSTANTIATE_TEST_SUITE_P(Each, EndedWatch,
                         testing::Values(WatchEnd::kReloaded, WatchEnd::kSandboxEnded, WatchEnd::kDraining,
                                         WatchEnd::kFailed, WatchEnd::kRemoved));

}  // namespace
}  // namespace isogate::front::e2b
