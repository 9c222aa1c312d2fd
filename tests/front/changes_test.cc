#include "gateway/front/base/changes.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <memory>

#include "gateway/front/base/event.h"

namespace isogate::front {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

constexpr int kWaiters = 1000;

class ChangesTest : public testing::Test {
 protected:
  template <typename Task>
  void begin(Task task) {
    asio::co_spawn(io_, std::move(task), asio::detached);
  }
  void turn() {
    io_.restart();
    io_.poll();
  }
  asio::awaitable<void> wait(milliseconds limit) {
    const bool came = co_await changes_.until(
        [this] {
          ++checks_;
          return there_;
        },
        limit);
    ++(came ? came_ : late_);
  }

  asio::io_context io_;
  Changes changes_{io_.get_executor()};
  bool there_ = false;
  int checks_ = 0, came_ = 0, late_ = 0;
};

TEST_F(ChangesTest, ALimitThatPassesWakesNobodyElse) {
  for (int i = 0; i < kWaiters; ++i) begin(wait(milliseconds(1 + i / 10)));
  io_.run();
  EXPECT_EQ(late_, kWaiters);
  EXPECT_LE(checks_, 3 * kWaiters);
}

TEST_F(ChangesTest, AChangeWakesAll) {
  for (int i = 0; i < kWaiters; ++i) begin(wait(milliseconds(60'000)));
  turn();
  changes_.notify();
  turn();
  EXPECT_EQ(came_, 0);
  there_ = true;
  changes_.notify();
  turn();
  EXPECT_EQ(came_, kWaiters);
  EXPECT_EQ(late_, 0);
}

TEST_F(ChangesTest, WaitersMayOutliveIt) {
  auto io = std::make_unique<asio::io_context>();
  auto changes = std::make_unique<Changes>(io->get_executor());
  asio::co_spawn(*io, changes->until([] { return false; }), asio::detached);
  io->poll();
  changes.reset();
  io.reset();
}

TEST_F(ChangesTest, AnEventIsWaitedForUntilAKill) {
  Event event(io_.get_executor());
  Killer killer;
  int came = 0, left = 0;
  const auto wait = [&]() -> asio::awaitable<void> {
    const bool is_set = co_await event.wait_for(milliseconds(60'000), killer);
    ++(is_set ? came : left);
  };
  begin(wait());
  turn();
  killer.kill();
  turn();
  EXPECT_EQ(left, 1);
  event.set();
  begin(wait());
  turn();
  EXPECT_EQ(came, 1);
}

}  // namespace
}  // namespace isogate::front
