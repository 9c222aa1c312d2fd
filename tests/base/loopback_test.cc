#include "lib/loopback.h"

#include <gtest/gtest.h>

namespace isogate {
namespace {

TEST(Loopback, IsAnAddressAndNeverAName) {
  for (const char* own : {"127.0.0.1", "127.255.0.9", "::1", "0:0::1", "::ffff:127.0.0.1"})
    EXPECT_TRUE(is_loopback(own)) << own;
  for (const char* other :
       {"", "localhost", "127.", "127.1", "127.0.0.1.evil.example", "128.0.0.1", "0.0.0.0", "::", "::2",
        "[::1]", "::ffff:10.0.0.1", "::127.0.0.1", "127.0.0.1:80"})
    EXPECT_FALSE(is_loopback(other)) << other;
}

}  // namespace
}  // namespace isogate
