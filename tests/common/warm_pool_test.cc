#include "plugins/common/warm_pool.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/support/api.h"

namespace isogate {
namespace {

using test::eventually;
using testing::HasSubstr;

struct Box {
  Limits limits;
  int number = 0;
  std::shared_ptr<std::atomic<bool>> alive = std::make_shared<std::atomic<bool>>(true);

  [[nodiscard]] bool warm() const { return *alive; }
};

Limits of_memory(uint64_t bytes) { return Limits{{ISOGATE_LIMIT_MEMORY_BYTES, bytes}}; }

class WarmPoolTest : public testing::Test, protected WarmPool<Box>::Source {
 protected:
  using Pool = WarmPool<Box>;

  WarmPoolTest() {
    host_.struct_size = sizeof host_;
    host_.ctx = this;
    host_.log = [](void* ctx, uint32_t, isogate_str line) {
      auto& self = *static_cast<WarmPoolTest*>(ctx);
      const std::lock_guard lock(self.mutex_);
      self.log_ += std::string(sdk::view(line)) + "\n";
    };
  }
  std::unique_ptr<Pool> make_pool(size_t size, size_t at_once = 1) {
    Pool::Source& source = *this;
    return std::make_unique<Pool>(source, sdk::Host(host_), size, at_once, of_memory(1));
  }
  static bool has(const Pool& pool, const std::string& count) {
    return eventually(10, [&] { return pool.text() == count + " sandboxes ready ahead"; });
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }
  std::vector<int> removed() {
    const std::lock_guard lock(mutex_);
    return removed_;
  }

  Box make(const Limits& limits, const sdk::Call& call) override {
    if (hangs_) {
      while (!call.cancelled()) std::this_thread::yield();
      call.check();
    }
    if (fails_) throw sdk::Error(ISOGATE_UNAVAILABLE, "no room");
    Box box{limits, ++made_};
    *box.alive = !dies_;
    return box;
  }
  bool remove(Box box) noexcept override {
    const std::lock_guard lock(mutex_);
    removed_.push_back(box.number);
    return !stays_;
  }
  void tend(const sdk::Call&) override { ++tended_; }
  [[nodiscard]] bool may_make() const override { return may_make_; }

  std::atomic<bool> fails_{false}, dies_{false}, hangs_{false}, stays_{false}, may_make_{true};
  std::atomic<int> made_{0}, tended_{0};

 private:
  isogate_host host_{};
  std::mutex mutex_;
  std::string log_;
  std::vector<int> removed_;
};

TEST_F(WarmPoolTest, WhatIsTakenIsMadeAgain) {
  const auto pool = make_pool(3, 2);
  ASSERT_TRUE(has(*pool, "3 of 3"));
  EXPECT_TRUE(pool->pick(of_memory(1)));
  EXPECT_TRUE(eventually(10, [&] { return made_ == 4; }));
  EXPECT_TRUE(has(*pool, "3 of 3"));
  EXPECT_TRUE(removed().empty());
}

TEST_F(WarmPoolTest, ItFollowsTheLimitsThatAreAskedForTwiceInARow) {
  const auto pool = make_pool(1);
  ASSERT_TRUE(has(*pool, "1 of 1"));
  ASSERT_TRUE(pool->pick(of_memory(1)));
  ASSERT_TRUE(has(*pool, "1 of 1"));
  EXPECT_FALSE(pool->pick(of_memory(2)));
  EXPECT_FALSE(eventually(1, [&] { return !removed().empty(); })) << "once is not enough";
  EXPECT_FALSE(pool->pick(of_memory(2)));
  EXPECT_TRUE(eventually(10, [&] { return pool->pick(of_memory(2)).has_value(); }));
  EXPECT_EQ(removed(), std::vector<int>{2});
}

TEST_F(WarmPoolTest, ADeadOneIsNotTakenAndIsReplaced) {
  const auto pool = make_pool(1);
  ASSERT_TRUE(has(*pool, "1 of 1"));
  auto box = pool->take_if([](const Box&) { return true; });
  ASSERT_TRUE(box);
  const auto alive = box->alive;
  ASSERT_TRUE(has(*pool, "0 of 1") || made_ == 2);
  pool->put(std::move(*box));
  *alive = false;
  EXPECT_TRUE(eventually(10, [&] { return !removed().empty(); }));
  EXPECT_EQ(removed(), std::vector<int>{1});
  EXPECT_TRUE(has(*pool, "1 of 1"));
}

TEST_F(WarmPoolTest, WhatDiesAtOnceIsNotReplacedWithoutAPause) {
  dies_ = true;
  const auto start = std::chrono::steady_clock::now();
  const auto pool = make_pool(3);
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const int made = made_;
  EXPECT_LE(made, 3 + test::since(start)) << "one a second, and the first two";
  EXPECT_TRUE(eventually(10, [&] { return made_ >= 2; }));
  dies_ = false;
  EXPECT_TRUE(has(*pool, "3 of 3"));
}

TEST_F(WarmPoolTest, WhatCannotBeMadeIsTriedAgainAfterAWhile) {
  fails_ = true;
  const auto pool = make_pool(1);
  EXPECT_TRUE(eventually(10, [&] { return tended_ >= 2; }));
  EXPECT_THAT(log(), HasSubstr("no sandbox can be made ahead, next try in 1 s: no room"));
  fails_ = false;
  EXPECT_TRUE(has(*pool, "1 of 1"));
}

TEST_F(WarmPoolTest, WhereNoneMayBeMadeItOnlyTends) {
  may_make_ = false;
  const auto pool = make_pool(1);
  EXPECT_TRUE(eventually(10, [&] { return tended_ >= 1; }));
  EXPECT_FALSE(pool->pick(of_memory(1)));
  EXPECT_EQ(made_, 0);
}

TEST_F(WarmPoolTest, ItsEndCancelsAndRemovesUntilOneStays) {
  auto pool = make_pool(3);
  ASSERT_TRUE(has(*pool, "3 of 3"));
  hangs_ = true;
  ASSERT_TRUE(pool->pick(of_memory(1)));
  stays_ = true;
  pool.reset();
  EXPECT_EQ(removed(), std::vector<int>{2});
  EXPECT_EQ(log(), "");
}

}  // namespace
}  // namespace isogate
