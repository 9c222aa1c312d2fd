#include "plugins/docker/background.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <string>


namespace isogate::docker {
namespace {

class BackgroundTest : public testing::Test {
 protected:
  BackgroundTest() {
    host_.struct_size = sizeof host_;
    host_.ctx = this;
    host_.log = [](void* ctx, uint32_t, isogate_str line) {
      static_cast<BackgroundTest*>(ctx)->log_ += sdk::view(line);
    };
  }
  std::string log_;
  isogate_host host_{};
};

TEST_F(BackgroundTest, WhatFailsIsTriedAgainUntilItIsDone) {
  Background background{sdk::Host(host_)};
  std::atomic<int> tries = 0;
  EXPECT_TRUE(background.begin("a", "it", [&](const sdk::Call&) {
    if (++tries < 3) throw sdk::Error(ISOGATE_UNAVAILABLE, "not yet");
  }));
  EXPECT_TRUE(background.is_done("a", std::chrono::seconds(20)));
  EXPECT_EQ(tries, 3);
}

TEST_F(BackgroundTest, WithoutDescriptorsNothingBeginsAndItSaysSo) {
  Background background{sdk::Host(host_)};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool begun = background.begin("a", "the container x is killed", [](const sdk::Call&) {});
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_FALSE(begun);
  EXPECT_NE(log_.find("the container x is killed: cannot begin: "), std::string::npos) << log_;
}

}  // namespace
}  // namespace isogate::docker
