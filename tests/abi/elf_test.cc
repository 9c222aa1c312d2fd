#include "gateway/host/plugin/elf.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "tests/abi/trusted_dir.h"

namespace isogate {
namespace {

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string((std::istreambuf_iterator<char>(in)), {});
}

TEST(Elf, FindsWhatTheLoaderWouldUse) {
  auto elf = read_elf(bytes_of(fixture("relative_runpath")));
  ASSERT_TRUE(elf.ok()) << elf.error().message;
  EXPECT_EQ(elf->search_paths, std::vector<std::string>{"lib"});
  EXPECT_EQ(elf->exports, std::vector<std::string>{"isogate_plugin_entry"});
  EXPECT_NE(std::find(elf->needed.begin(), elf->needed.end(), "libc.so.6"), elf->needed.end());
  EXPECT_FALSE(elf->loads_more);
}

TEST(Elf, RefusesEveryTruncationOfTheHeaders) {
  std::string bytes = bytes_of(fixture("good"));
  for (size_t length = 0; length < 1024; ++length)
    EXPECT_FALSE(read_elf(bytes.substr(0, length)).ok()) << length;
}

TEST(Elf, SurvivesRandomMutations) {
  std::string good = bytes_of(fixture("relative_runpath"));
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    std::string bytes = good;
    // Most of what matters is in the headers, at both ends.
    for (unsigned n = random() % 8 + 1; n > 0; --n) {
      size_t place = random() % 2 == 0 ? random() % 1024 : random() % bytes.size();
      bytes[place] = static_cast<char>(random());
    }
    if (random() % 4 == 0) bytes.resize(random() % bytes.size());
    auto elf = read_elf(bytes);
    EXPECT_TRUE(!elf.ok() || elf->exports.size() <= 256);
  }
}

}  // namespace
}  // namespace isogate
