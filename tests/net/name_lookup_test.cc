// A resolver that does not answer costs few threads, and one that fails does not end the process.
#include "lib/net/name_lookup.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <condition_variable>
#include <mutex>
#include <new>

namespace isogate::net {
namespace {

// A resolver that answers nothing until it is released.
struct Stuck {
  std::mutex mutex;
  std::condition_variable changed;
  bool open = false;
  int asked = 0, left = 0;

  NameLookups::Resolver resolver() {
    return [this](const char*, const char*, const addrinfo*, addrinfo**) {
      std::unique_lock lock(mutex);
      ++asked;
      changed.notify_all();
      changed.wait(lock, [this] { return open; });
      ++left;
      changed.notify_all();
      return EAI_AGAIN;
    };
  }
  void await(int count) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return asked >= count; });
  }
  ~Stuck() {
    std::unique_lock lock(mutex);
    open = true;
    changed.notify_all();
    changed.wait(lock, [this] { return left == asked; });
  }
};

bool ends(const NameLookup& lookup, int milliseconds = 10'000) {
  pollfd watch{lookup.done(), POLLIN, 0};
  return ::poll(&watch, 1, milliseconds) == 1;
}

TEST(NameLookups, OfANumberAreOverAtOnce) {
  NameLookups lookups([](auto...) -> int { throw std::bad_alloc(); });
  for (const char* host : {"127.0.0.1", "::1"}) {
    const auto lookup = lookups.begin(host, 80);
    ASSERT_TRUE(lookup) << lookup.error().message;
    EXPECT_TRUE((*lookup)->over());
    EXPECT_TRUE(ends(**lookup, 0));
    EXPECT_EQ((*lookup)->answer().failure, 0);
    ASSERT_EQ((*lookup)->answer().found.size(), 1u);
  }
}

TEST(NameLookups, OfOneNameShareAThread) {
  Stuck stuck;
  NameLookups lookups(stuck.resolver(), 2);
  const auto first = lookups.begin("one.example", 80);
  ASSERT_TRUE(first);
  for (int i = 0; i < 100; ++i) {
    const auto again = lookups.begin("one.example", 80);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, *first);
  }
  stuck.await(1);
  const std::lock_guard lock(stuck.mutex);
  EXPECT_EQ(stuck.asked, 1);
  EXPECT_FALSE((*first)->over());
}

TEST(NameLookups, OfMoreNamesThanMayBeAreRefusedUntilOneEnds) {
  std::shared_ptr<NameLookup> one;
  {
    Stuck stuck;
    NameLookups lookups(stuck.resolver(), 2);
    const auto first = lookups.begin("one.example", 80), second = lookups.begin("two.example", 80);
    ASSERT_TRUE(first && second);
    const auto third = lookups.begin("three.example", 80);
    ASSERT_FALSE(third);
    EXPECT_EQ(third.error().status, ISOGATE_UNAVAILABLE);
    EXPECT_NE(third.error().message.find("three.example"), std::string::npos) << third.error().message;
    stuck.await(2);
    one = *first;
    {
      const std::lock_guard lock(stuck.mutex);
      stuck.open = true;
      stuck.changed.notify_all();
    }
    ASSERT_TRUE(ends(*one) && ends(**second));
    const auto later = lookups.begin("three.example", 80);
    ASSERT_TRUE(later) << later.error().message;
    EXPECT_TRUE(ends(**later));
  }
  EXPECT_EQ(one->answer().failure, EAI_AGAIN);
}

TEST(NameLookups, ThatThrowAreFailures) {
  NameLookups lookups([](auto...) -> int { throw std::bad_alloc(); });
  const auto lookup = lookups.begin("one.example", 80);
  ASSERT_TRUE(lookup);
  ASSERT_TRUE(ends(**lookup));
  EXPECT_EQ((*lookup)->answer().failure, EAI_MEMORY);
}

TEST(NameLookups, OfThisMachineAreFound) {
  const auto lookup = NameLookups::shared().begin("localhost", 80);
  ASSERT_TRUE(lookup);
  ASSERT_TRUE(ends(**lookup));
  EXPECT_EQ((*lookup)->answer().failure, 0);
  EXPECT_FALSE((*lookup)->answer().found.empty());
}

}  // namespace
}  // namespace isogate::net
