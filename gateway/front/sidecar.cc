#include "gateway/front/sidecar.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <string_view>

#include "gateway/front/base/alarm.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

constexpr std::chrono::milliseconds kBetween{500};
constexpr std::chrono::seconds kOneTry{2};

// "" when it answered 200, else why not.
asio::awaitable<std::string> ask(asio::any_io_executor executor, const std::string& host,
                                 const std::string& port) {
  tcp::resolver resolver(executor);
  tcp::socket socket(executor);
  boost::system::error_code error;
  auto token = asio::redirect_error(asio::use_awaitable, error);
  const auto found = co_await resolver.async_resolve(host, port, token);  // nothing can interrupt it
  if (error) co_return error.message();
  bool late = false;
  Alarm limit(executor);
  limit.set(kOneTry, [&] {
    late = true;
    boost::system::error_code ignored;
    socket.close(ignored);
  });
  const auto why = [&] {
    return late ? "no answer within " + std::to_string(kOneTry.count()) + " s" : error.message();
  };
  co_await asio::async_connect(socket, found, token);
  if (error) co_return why();
  const std::string request =
      "GET /healthz HTTP/1.1\r\nHost: " + host + ":" + port + "\r\nConnection: close\r\n\r\n";
  co_await asio::async_write(socket, asio::buffer(request), token);
  if (error) co_return why();
  std::array<char, 12> answer{};
  size_t used = 0;
  while (used < answer.size()) {
    used += co_await socket.async_read_some(asio::buffer(answer.data() + used, answer.size() - used), token);
    if (error) co_return why();
  }
  const std::string_view line(answer.data(), answer.size());
  co_return line.starts_with("HTTP/1.") && line.substr(9, 3) == "200" ? ""
                                                                      : "it answered " + std::string(line);
}

}  // namespace

asio::awaitable<Result<void>> wait_for_sidecar(asio::any_io_executor executor, std::string address,
                                               std::chrono::seconds limit) {
  const auto [host, port] = split_address(address);
  const auto until = std::chrono::steady_clock::now() + limit;
  log::info("waiting_for_sidecar", {{"address", address}, {"limit_sec", limit.count()}});
  for (;;) {
    const std::string problem = co_await ask(executor, std::string(host), std::string(port));
    if (problem.empty()) co_return Result<void>();
    if (std::chrono::steady_clock::now() >= until) {
      co_return Error{ISOGATE_UNAVAILABLE, 0,
                      "the sidecar at " + address + " was not healthy within " +
                          std::to_string(limit.count()) + " s (wait_for_sidecar): " + problem};
    }
    co_await sleep_for(executor, kBetween);
  }
}

}  // namespace isogate::front
