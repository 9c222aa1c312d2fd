#include "lib/semaphore.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace isogate {
namespace {

using namespace std::chrono_literals;

TEST(SemaphoreTest, it_has_as_many_places_as_it_was_made_with) {
  Semaphore two(2);
  EXPECT_TRUE(two.try_lock());
  EXPECT_TRUE(two.try_lock());
  EXPECT_FALSE(two.try_lock());
  two.unlock();
  EXPECT_TRUE(two.try_lock());
}

TEST(SemaphoreTest, a_release_wakes_who_waits) {
  Semaphore one;
  one.lock();
  std::jthread other([&] {
    std::this_thread::sleep_for(50ms);
    one.unlock();
  });
  EXPECT_TRUE(one.lock(-1));
}

TEST(SemaphoreTest, a_descriptor_and_a_time_end_the_wait) {
  const Fd cancel = std::move(*make_event());
  Semaphore one;
  one.lock();
  EXPECT_FALSE(one.lock(cancel.get(), 20ms));
  std::jthread other([&] {
    std::this_thread::sleep_for(50ms);
    signal_event(cancel.get());
  });
  EXPECT_FALSE(one.lock(cancel.get()));
}

TEST(SemaphoreTest, a_free_place_is_taken_by_a_cancelled_call_too) {
  const Fd cancel = std::move(*make_event());
  signal_event(cancel.get());
  Semaphore one;
  EXPECT_TRUE(one.lock(cancel.get())) << "as a mutex: it has not waited";
}

// A wake that a cancelled one has taken goes on to the next.
TEST(SemaphoreTest, no_wake_is_lost) {
  const Fd cancel = std::move(*make_event());
  Semaphore places(3);
  std::atomic<int> inside = 0, most = 0, turns = 0;
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&, cancelled = i % 4 == 0] {
      for (int turn = 0; turn < 2000; ++turn) {
        if (!places.lock(cancelled ? cancel.get() : -1, cancelled ? 1ms : 60'000ms)) continue;
        const int now = ++inside;
        for (int before = most; now > before && !most.compare_exchange_weak(before, now);) {
        }
        std::this_thread::yield();
        --inside;
        ++turns;
        places.unlock();
      }
    });
  threads.clear();
  EXPECT_LE(most, 3);
  EXPECT_GE(turns, 6 * 2000);
}

}  // namespace
}  // namespace isogate
