#include "gateway/front/e2b/gunzip.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/front/base/api_error.h"
#include "tests/front/e2b/body.h"

namespace isogate::front::e2b {
namespace {

std::string packed(const std::string& bytes) {
  z_stream z{};
  EXPECT_EQ(::deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(::deflateBound(&z, bytes.size()), '\0');
  std::string in = bytes;
  z.next_in = reinterpret_cast<Bytef*>(in.data());
  z.avail_in = static_cast<uInt>(in.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(::deflate(&z, Z_FINISH), Z_STREAM_END);
  out.resize(z.total_out);
  ::deflateEnd(&z);
  return out;
}

std::string unpacked(const std::string& body, size_t step, size_t at_a_time = 1000) {
  std::string all;
  const auto read_all = [&]() -> boost::asio::awaitable<void> {
    Gunzip gunzip(body_of(body, step));
    std::string piece(at_a_time, '\0');
    while (const size_t n = co_await gunzip.read(piece.data(), piece.size())) all.append(piece, 0, n);
  };
  run(read_all());
  return all;
}

TEST(Gunzip, WhatWasPackedComesOut) {
  std::string bytes;
  for (int i = 0; i < 100000; ++i) bytes += static_cast<char>(i * 31 + i / 256);
  for (const std::string& each : {std::string(), std::string("x"), bytes, std::string(1000000, 'a')})
    for (const size_t step : {size_t{1}, size_t{100}, SIZE_MAX})
      EXPECT_TRUE(unpacked(packed(each), step) == each) << each.size() << " " << step;
}

TEST(Gunzip, WhatIsNoGzipOrIsCutIsRefused) {
  const std::string whole = packed("some text");
  for (const std::string& bad : {std::string(), std::string("plain"), whole.substr(0, whole.size() - 1),
                                 whole + "behind", whole + whole, std::string(20, '\0')})
    EXPECT_THROW(unpacked(bad, SIZE_MAX), ApiError) << bad.size();
  std::string broken = whole;
  broken[broken.size() - 6] = static_cast<char>(broken[broken.size() - 6] ^ 1);  // its checksum
  EXPECT_THROW(unpacked(broken, SIZE_MAX), ApiError);
}

TEST(Gunzip, OthersHaveTheirTurnWhileMuchIsUnpacked) {
  const std::string body = packed(std::string(16 << 20, '\0'));
  int turns = 0;
  bool over = false;
  const auto others = [&]() -> boost::asio::awaitable<void> {
    while (!over) {
      ++turns;
      co_await boost::asio::post(boost::asio::use_awaitable);
    }
  };
  const auto read_all = [&]() -> boost::asio::awaitable<void> {
    const auto executor = co_await boost::asio::this_coro::executor;
    boost::asio::co_spawn(executor, others(), boost::asio::detached);
    Gunzip gunzip(body_of(body, SIZE_MAX));
    std::string piece(65536, '\0');
    while (co_await gunzip.read(piece.data(), piece.size()) > 0) {
    }
    over = true;
  };
  run(read_all());
  EXPECT_GE(turns, 15);
}

}  // namespace
}  // namespace isogate::front::e2b
