#include "gateway/front/backends/start_window.h"

#include <gtest/gtest.h>

#include <boost/asio/io_context.hpp>
#include <string>
#include <vector>

namespace isogate::front {
namespace {

using namespace std::chrono_literals;
using Slot = StartWindow::Slot;

class StartWindowTest : public testing::Test {
 protected:
  // From here on nobody takes what is given back.
  ~StartWindowTest() override { over_ = true; }
  void fill(uint32_t most) {
    window_->resize(most);
    for (uint32_t i = 0; i < most; ++i) slots_.push_back(std::get<Slot>(enter("a")));
  }
  std::variant<Slot, StartWindow::Queued> enter(const std::string& tenant) {
    return window_->enter(tenant, [this, tenant](Slot slot) {
      if (over_) return;
      order_ += tenant;
      slots_.push_back(std::move(slot));
    });
  }
  void queue(const std::string& tenant, int count) {
    for (int i = 0; i < count; ++i) ASSERT_TRUE(std::holds_alternative<StartWindow::Queued>(enter(tenant)));
  }
  void end_one() {
    Slot first = std::move(slots_.front());
    slots_.erase(slots_.begin());
  }

  boost::asio::io_context io_;
  std::shared_ptr<StartWindow> window_ = std::make_shared<StartWindow>(io_.get_executor());
  std::string order_;
  bool over_ = false;
  std::vector<Slot> slots_;
};

TEST_F(StartWindowTest, WithoutABoundNobodyWaits) {
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(std::holds_alternative<Slot>(enter("a")));
}

TEST_F(StartWindowTest, TenantsTakeTurnsWhateverTheirQueues) {
  window_->resize(1);
  std::get<Slot>(enter("a")).ended(1s);  // so that no slot is free again while the test queues
  fill(2);
  queue("a", 100);
  queue("b", 2);
  queue("c", 1);
  for (int i = 0; i < 6; ++i) end_one();
  EXPECT_EQ(order_, "abcaba");
  EXPECT_EQ(window_->waiting(), 97u);
}

// A program that runs for long delays nobody for longer than a start takes.
TEST_F(StartWindowTest, ASlotIsFreeAgainWhenAStartTakesNoLonger) {
  fill(2);
  queue("a", 3);
  const auto begun = std::chrono::steady_clock::now();
  while (order_.size() < 3 && io_.run_one_for(5s) > 0) {
  }
  EXPECT_EQ(order_, "aaa");
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 4s);
}

TEST_F(StartWindowTest, SlowStartsHoldTheirSlotsLonger) {
  fill(1);
  for (int i = 0; i < 100; ++i) {
    slots_.clear();
    std::get<Slot>(enter("a")).ended(80ms);
  }
  slots_.push_back(std::get<Slot>(enter("a")));
  queue("a", 1);
  const auto begun = std::chrono::steady_clock::now();
  while (order_.empty() && io_.run_one_for(5s) > 0) {
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 200ms);
}

TEST_F(StartWindowTest, LeavingTheQueueTakesNoTurn) {
  fill(1);
  const uint64_t first = std::get<StartWindow::Queued>(enter("a")).waiter;
  queue("b", 1);
  EXPECT_TRUE(window_->cancel(first));
  EXPECT_FALSE(window_->cancel(first));
  end_one();
  EXPECT_EQ(order_, "b");
  EXPECT_EQ(window_->waiting(), 0u);
}

TEST_F(StartWindowTest, AWiderWindowLetsWhoWaitsIn) {
  fill(1);
  queue("a", 3);
  window_->resize(StartWindow::kUnbounded);
  EXPECT_EQ(order_, "aaa");
}

}  // namespace
}  // namespace isogate::front
