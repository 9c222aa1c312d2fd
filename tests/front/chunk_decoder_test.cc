#include "gateway/front/http/chunk_decoder.h"

#include <gtest/gtest.h>

#include <array>
#include <string>

namespace isogate::front {
namespace {

struct Decoded {
  std::string data, rest, problem;
  bool done = false;
};

// With `in` bytes of input and room for `out` bytes of output at a time.
Decoded decoded(const std::string& bytes, size_t in_step = SIZE_MAX, size_t out_step = 4096) {
  ChunkDecoder decoder;
  Decoded result;
  std::array<char, 4096> out{};
  std::string_view left = bytes;
  while (!left.empty() && !decoder.done() && decoder.problem().empty()) {
    std::string_view piece = left.substr(0, in_step);
    const size_t before = piece.size();
    const size_t n = decoder.decode(piece, out.data(), out_step);
    EXPECT_LE(n, out_step);
    result.data.append(out.data(), n);
    left.remove_prefix(before - piece.size());
  }
  result.rest = left;
  result.problem = decoder.problem();
  result.done = decoder.done();
  return result;
}

TEST(ChunkDecoder, IsTheSameHoweverTheBytesAreCut) {
  const std::string bytes = "3\r\nabc\r\nA;x=\"y\"\r\n0123456789\r\n0\r\nX-Sum: 1\r\n\r\nGET /";
  for (size_t in = 1; in < bytes.size(); ++in) {
    for (const size_t out : {1u, 2u, 7u, 4096u}) {
      const Decoded all = decoded(bytes, in, out);
      EXPECT_EQ(all.data, "abc0123456789");
      EXPECT_EQ(all.rest, "GET /");
      EXPECT_TRUE(all.done) << all.problem;
    }
  }
}

TEST(ChunkDecoder, IsNotDoneBeforeTheLastByte) {
  const std::string bytes = "1\r\na\r\n0\r\n\r\n";
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_FALSE(decoded(bytes.substr(0, size)).done) << size;
  EXPECT_TRUE(decoded(bytes).done);
}

TEST(ChunkDecoder, RefusesWhatIsInDoubt) {
  for (const char* bad :
       {"g\r\n", "\r\n", "-1\r\n", "1 \r\n", "1\n", "1\rX", "1\r\nab", "1\r\na\n", "0\r\nX\r\n",
        "1000000000000000\r\n", "0\r\n\n", "0\r\n\rX", "0\r\nHost: a\r\n", "1;\x01"})
    EXPECT_NE(decoded(bad).problem, "") << bad;
  std::string extensions;
  for (int i = 0; i < 100; ++i) extensions += "1;" + std::string(200, 'x') + "\r\na\r\n";
  EXPECT_NE(decoded(extensions).problem.find("extension"), std::string::npos);
}

}  // namespace
}  // namespace isogate::front
