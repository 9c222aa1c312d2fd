#include "lib/sip_hash.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace isogate {
namespace {

// Of the authors' vectors: the key is the bytes 0 to 15, a message the bytes from 0 on.
TEST(SipHash, GivesItsTestVectors) {
  constexpr SipKey kKey{0x0706050403020100, 0x0f0e0d0c0b0a0908};
  for (const auto& [size, hash] : {std::pair<int, uint64_t>{0, 0x726fdb47dd0e0e31},
                                   {1, 0x74f839c593dc67fd},
                                   {7, 0xab0200f58b01d137},
                                   {8, 0x93f5f5799a932462},
                                   {15, 0xa129ca6149be45e5},
                                   {16, 0x3f2acc7f57c29bdb},
                                   {63, 0x958a324ceb064572}}) {
    std::string message;
    for (int i = 0; i < size; ++i) message += static_cast<char>(i);
    EXPECT_EQ(sip_hash(kKey, message), hash) << size;
  }
}

TEST(SipHash, ReadsBytesAsUnsigned) {
  EXPECT_NE(sip_hash({1, 2}, "\xff"), sip_hash({1, 2}, "\xff\xff"));
  EXPECT_NE(sip_hash({1, 2}, "bob"), sip_hash({1, 3}, "bob"));
}

}  // namespace
}  // namespace isogate
