#include "lib/hash.h"

#include <gtest/gtest.h>

#include <utility>

namespace isogate {
namespace {

// FIPS 180-4 examples.
TEST(Hash, KnowsTheVectorsOfSha256) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  EXPECT_EQ(hex(sha256("abc")), sha256_hex("abc"));
}

TEST(Hash, GoesOnFromACopyOfTheBeginning) {
  Sha256 beginning;
  beginning.add("a");
  for (const std::string rest : {"bc", "", "b"}) {
    Sha256 whole = beginning;
    whole.add(rest);
    EXPECT_EQ(std::move(whole).digest(), sha256("a" + rest));
  }
}

TEST(Hash, ComparesWholeTexts) {
  EXPECT_TRUE(equal_constant_time("", ""));
  EXPECT_TRUE(equal_constant_time("same", "same"));
  EXPECT_FALSE(equal_constant_time("same", "sane"));
  EXPECT_FALSE(equal_constant_time("same", "same "));
  EXPECT_FALSE(equal_constant_time(std::string_view("a\0b", 3), std::string_view("a\0c", 3)));
}

TEST(Hash, DrawsDifferentBytes) {
  EXPECT_EQ(random_bytes(0).size(), 0u);
  EXPECT_EQ(random_bytes(1000).size(), 1000u);
  EXPECT_NE(random_bytes(16), random_bytes(16));
}

// RFC 4648, section 10, in lower case and without padding.
TEST(Hash, SpellsBase32AndHex) {
  EXPECT_EQ(base32_lower(""), "");
  EXPECT_EQ(base32_lower("f"), "my");
  EXPECT_EQ(base32_lower("fo"), "mzxq");
  EXPECT_EQ(base32_lower("foo"), "mzxw6");
  EXPECT_EQ(base32_lower("foob"), "mzxw6yq");
  EXPECT_EQ(base32_lower("fooba"), "mzxw6ytb");
  EXPECT_EQ(base32_lower("foobar"), "mzxw6ytboi");
  EXPECT_EQ(base32_lower(std::string(16, '\xff')).size(), 26u);
  EXPECT_EQ(hex(std::string_view("\x00\x7f\xff", 3)), "007fff");
}

}  // namespace
}  // namespace isogate
