#include "gateway/front/e2b/watchers.h"

#include "gateway/front/base/alarm.h"
#include "tests/front/fake_host.h"

namespace isogate::front::e2b {
namespace {

class WatchersTest : public OnFakeHost {};

TEST_F(WatchersTest, OneThatNobodyAsksForIsForgottenWithoutAnother) {
  std::optional<Lease> lease;
  ASSERT_NO_THROW(open(lease));
  ByteBudget budget;
  ByteShare memory(budget, "tenant");
  memory.hold(1000);
  Watchers watchers;
  auto watch = std::make_unique<Watch>(*lease, FileTarget{.path = "", .request_id = "request"});
  watchers.keep(io_.get_executor(), "tenant", "agent", std::move(watch), std::move(memory));
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

}  // namespace
}  // namespace isogate::front::e2b
