#include "gateway/front/sidecar.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>

namespace isogate::front {
namespace {
namespace asio = boost::asio;
using asio::ip::tcp;

TEST(Sidecar, OneThatAcceptsAndIsSilentIsNamed) {
  asio::io_context io;
  const tcp::acceptor silent(io, tcp::endpoint(asio::ip::address_v4::loopback(), 0));
  const std::string address = "127.0.0.1:" + std::to_string(silent.local_endpoint().port());
  std::optional<Result<void>> result;
  asio::co_spawn(io, wait_for_sidecar(io.get_executor(), address, std::chrono::seconds(1)),
                 [&](const std::exception_ptr&, Result<void> done) { result.emplace(std::move(done)); });
  io.run_for(std::chrono::seconds(20));
  ASSERT_TRUE(result && !result->ok());
  EXPECT_NE(
      result->error().message.find("was not healthy within 1 s (wait_for_sidecar): no answer within 2 s"),
      std::string::npos)
      << result->error().message;
}

}  // namespace
}  // namespace isogate::front
