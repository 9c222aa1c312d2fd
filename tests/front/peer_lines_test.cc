#include "gateway/front/http/peer_lines.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lib/log.h"

namespace isogate::front {
namespace {

using namespace std::chrono_literals;

class PeerLinesTest : public ::testing::Test {
 protected:
  // What `act` wrote to the log.
  template <typename Act>
  static std::string logged(Act act) {
    ::testing::internal::CaptureStderr();
    act();
    log::flush();
    return ::testing::internal::GetCapturedStderr();
  }
  PeerLines::Time now_{1h};
};

TEST_F(PeerLinesTest, WritesTheFirstOnesAndCountsTheRest) {
  PeerLines lines({.per_peer = 3, .in_all = 100, .max_peers = 8, .window = 60s});
  int written = 0;
  const std::string counted = logged([&] {
    for (int i = 0; i < 1000; ++i)
      written += lines.admit("10.0.0.1", i % 2 == 0 ? "400" : "401", now_) ? 1 : 0;
    EXPECT_TRUE(lines.admit("10.0.0.2", "400", now_)) << "another peer's first";
    lines.tick(now_ + 59s);
    lines.tick(now_ + 60s);
  });
  EXPECT_EQ(written, 3);
  EXPECT_NE(counted.find("\"peer\":\"10.0.0.1\",\"lines\":997,\"of\":\"400: 498, 401: 499\""),
            std::string::npos)
      << counted;
  EXPECT_EQ(counted.find("10.0.0.2"), std::string::npos) << "no line of it was left out";
  EXPECT_TRUE(lines.admit("10.0.0.1", "400", now_ + 61s)) << "a new window";
}

TEST_F(PeerLinesTest, IsBoundedForAnyNumberOfPeers) {
  PeerLines lines({.per_peer = 20, .in_all = 50, .max_peers = 16, .window = 60s});
  int written = 0;
  const std::string counted = logged([&] {
    for (int i = 0; i < 20000; ++i)
      written += lines.admit("127.1." + std::to_string(i / 250) + "." + std::to_string(i % 250), "400", now_)
                     ? 1
                     : 0;
    EXPECT_LE(lines.peers(), 17U);
    lines.flush();
  });
  EXPECT_EQ(written, 16 + 20) << "one of each peer that is counted separately, and those of all others";
  EXPECT_NE(counted.find("other peers"), std::string::npos);
  EXPECT_LT(std::count(counted.begin(), counted.end(), '\n'), 18);
}

TEST_F(PeerLinesTest, TakesAnIpv6NetworkForOnePeer) {
  PeerLines lines({.per_peer = 1, .in_all = 50, .max_peers = 16, .window = 60s});
  EXPECT_TRUE(lines.admit("2001:db8::1", "400", now_));
  EXPECT_FALSE(lines.admit("2001:db8::2", "400", now_));
}

}  // namespace
}  // namespace isogate::front
