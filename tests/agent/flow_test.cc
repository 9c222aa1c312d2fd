// The bytes of a channel, with a client that is only a counter.
#include "runner/agent/calls/flow.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <future>
#include <thread>

#include "tests/eventually.h"

namespace isogate::agent {
namespace {

constexpr uint32_t kStream = 1;

class Counter final : public Connection {
 public:
  size_t read(std::span<char>) override { return 0; }
  bool send(uint16_t, uint32_t, std::string_view, std::string_view bytes) override {
    sent += bytes.size();
    return true;
  }
  void stop() override {}
  [[nodiscard]] bool stopped() const override { return false; }

  std::atomic<size_t> sent{0};
};

// The main thread moves the bytes of all calls: one client that gives no credit stops its own call only.
TEST(Outlet, IsNotPumpedWhileItsCallWaitsForCredit) {
  Poller poller;
  ASSERT_TRUE(poller.open().ok());
  Counter counter;
  Outlet outlet({counter, poller}, kStream, ISOGATE_RUNNER_STDOUT);
  auto end = outlet.open();
  ASSERT_TRUE(end.ok());
  ASSERT_EQ(::write(end->get(), "123456", 6), 6);
  outlet.waiting().take(ISOGATE_RUNNER_WINDOW - 1);
  std::thread call([&] { outlet.drain(); });
  EXPECT_TRUE(test::eventually(10, [&] { return counter.sent == 1; }));
  std::array<char, 64> buffer{};
  auto pumped = std::async(std::launch::async, [&] { outlet.pump(buffer); });
  EXPECT_EQ(pumped.wait_for(std::chrono::seconds(1)), std::future_status::ready);
  EXPECT_EQ(counter.sent, 1U);
  outlet.add_credit(5);
  call.join();
  EXPECT_EQ(counter.sent, 6U);
}

}  // namespace
}  // namespace isogate::agent
