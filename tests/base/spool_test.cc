#include "lib/spool.h"

#include <gtest/gtest.h>

#include <random>

namespace isogate {
namespace {

std::string rest(const Spool& spool, uint64_t offset) {
  std::string all;
  for (auto part = spool.from(offset); !part.empty(); part = spool.from(offset + all.size())) all += part;
  return all;
}

TEST(Spool, KeepsTheLastBytesByTheirOffset) {
  Spool spool(8);
  EXPECT_EQ(spool.first(), 0u);
  EXPECT_TRUE(spool.from(0).empty());
  spool.append("abcdef");
  EXPECT_EQ(rest(spool, 0), "abcdef");
  EXPECT_EQ(rest(spool, 4), "ef");
  spool.append("ghijk");
  EXPECT_EQ(spool.first(), 3u);
  EXPECT_EQ(spool.next(), 11u);
  EXPECT_EQ(spool.text(), "defghijk");
  EXPECT_EQ(rest(spool, 10), "k");
  EXPECT_TRUE(spool.from(11).empty());
}

TEST(Spool, ASingleWriteLargerThanAllOfItLeavesItsEnd) {
  Spool spool(4);
  spool.append("abc");
  spool.append("0123456789");
  EXPECT_EQ(spool.first(), 9u);
  EXPECT_EQ(spool.next(), 13u);
  EXPECT_EQ(spool.text(), "6789");
}

TEST(Spool, OneOfNoBytesOnlyCounts) {
  Spool spool(0);
  spool.append("abc");
  EXPECT_EQ(spool.first(), 3u);
  EXPECT_EQ(spool.next(), 3u);
  EXPECT_TRUE(spool.from(3).empty());
}

TEST(Spool, ReportsHowMuchFitsBeforeAByteIsDropped) {
  Spool spool(8);
  spool.append("abcdef");
  EXPECT_EQ(spool.room(0), 2u);
  EXPECT_EQ(spool.room(6), 8u);
  spool.append("gh");
  EXPECT_EQ(spool.room(0), 0u);
  EXPECT_EQ(spool.room(3), 3u);
}

TEST(Spool, KeepsMoreForAWhile) {
  Spool spool(4);
  spool.append("abcd");
  spool.widen(3);
  spool.append("efg");
  EXPECT_EQ(spool.text(), "abcdefg");
  spool.narrow(4);
  EXPECT_EQ(spool.text(), "defg");
  EXPECT_EQ(spool.first(), 3u);
  spool.append("h");
  EXPECT_EQ(spool.text(), "efgh");
}

TEST(Spool, TakesMemoryAsBytesCome) {
  Spool spool(1 << 20);
  EXPECT_EQ(spool.held(), 0u);
  spool.append("a");
  EXPECT_LE(spool.held(), 4096u);
  spool.append(std::string(10000, 'b'));
  EXPECT_LE(spool.held(), 20000u);
  EXPECT_EQ(spool.text(), "a" + std::string(10000, 'b'));
}

TEST(Spool, HasTheSameBytesHoweverTheyCome) {
  std::mt19937 random(3);
  std::string all;
  Spool spool(5000);
  for (int i = 0; i < 3000; ++i) {
    std::string part(random() % 97, '\0');
    for (char& byte : part) byte = static_cast<char>(random());
    all += part;
    spool.append(part);
    const uint64_t offset = spool.first() + random() % (spool.next() - spool.first() + 1);
    ASSERT_EQ(rest(spool, offset), all.substr(offset));
  }
  EXPECT_EQ(spool.next(), all.size());
  EXPECT_EQ(spool.next() - spool.first(), 5000u);
}

}  // namespace
}  // namespace isogate
