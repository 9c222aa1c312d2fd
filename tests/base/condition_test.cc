#include "lib/condition.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>

namespace isogate {
namespace {

using namespace std::chrono_literals;

class ConditionTest : public testing::Test {
 protected:
  std::mutex mutex_;
  Condition changed_;
  bool done_ = false;
};

TEST_F(ConditionTest, notify_wakes_every_waiter) {
  std::atomic<int> waiting = 0, woken = 0;
  const auto wait = [&] {
    std::unique_lock lock(mutex_);
    ++waiting;
    while (!done_) changed_.wait(lock, -1);
    ++woken;
  };
  std::jthread first(wait), second(wait);
  while (waiting < 2) std::this_thread::yield();
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  first.join();
  second.join();
  EXPECT_EQ(woken, 2);
}

TEST_F(ConditionTest, a_descriptor_ends_the_wait) {
  const Fd cancel = std::move(*make_event());
  std::unique_lock lock(mutex_);
  std::jthread other([&] {
    const std::lock_guard its(mutex_);  // once the other waits
    signal_event(cancel.get());
  });
  changed_.wait(lock, cancel.get());
  EXPECT_TRUE(is_signalled(cancel.get()));
  EXPECT_TRUE(lock.owns_lock());
  lock.unlock();
}

TEST_F(ConditionTest, the_wait_ends_by_itself_and_at_once_if_its_time_is_over) {
  std::unique_lock lock(mutex_);
  const auto begun = std::chrono::steady_clock::now();
  changed_.wait(lock, -1, 20ms);
  EXPECT_GE(std::chrono::steady_clock::now() - begun, 20ms);
  changed_.wait(lock, -1, -5ms);
  changed_.notify_all();  // nobody waits
}

TEST_F(ConditionTest, without_a_descriptor_it_looks_again_and_again) {
  std::jthread other;
  {
    std::unique_lock lock(mutex_);
    other = std::jthread([&] {
      const std::lock_guard its(mutex_);
      done_ = true;
      changed_.notify_all();
    });
    rlimit before{};
    ::getrlimit(RLIMIT_NOFILE, &before);
    const Fd last(::dup(0));
    const rlimit none{static_cast<rlim_t>(last.get()) + 1, before.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
    const bool makes_one = make_event().ok();
    while (!done_) changed_.wait(lock, -1);
    ::setrlimit(RLIMIT_NOFILE, &before);
    EXPECT_FALSE(makes_one);
  }
}

}  // namespace
}  // namespace isogate
