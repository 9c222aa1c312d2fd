// GET requests over kept-alive connections, and the simplest server that could answer them.
//
//   livez serve PORT                              a Beast server on one thread, until killed
//   livez load PORT PATH CONNECTIONS SECONDS tls|plain    requests per second, latencies in µs, as JSON
#include <algorithm>
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

asio::awaitable<void> answer(tcp::socket socket) {
  boost::beast::flat_buffer buffer;
  socket.set_option(tcp::no_delay(true));
  boost::system::error_code error;
  for (;;) {
    http::request<http::string_body> request;
    co_await http::async_read(socket, buffer, request, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    http::response<http::string_body> response(http::status::ok, 11);
    response.set(http::field::content_type, "application/json");
    response.body() = "{\"status\":\"ok\"}\n";
    response.prepare_payload();
    co_await http::async_write(socket, response, asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
  }
}

asio::awaitable<void> accept_all(tcp::acceptor& acceptor) {
  for (;;) {
    tcp::socket socket = co_await acceptor.async_accept(asio::use_awaitable);
    asio::co_spawn(acceptor.get_executor(), answer(std::move(socket)), asio::detached);
  }
}

int serve(unsigned short port) {
  asio::io_context io{1};
  tcp::acceptor acceptor(io, tcp::endpoint(asio::ip::address_v4::loopback(), port));
  asio::co_spawn(io, accept_all(acceptor), asio::detached);
  io.run();
  return 0;
}

struct Load {
  std::string request;
  tcp::endpoint server;
  Clock::time_point until;
  std::vector<double> micros;
  size_t failed = 0, connected = 0;
};

// Until the server closes, or the time is over.
template <typename Stream>
asio::awaitable<void> ask(Load& load, Stream& stream) {
  boost::beast::flat_buffer buffer;
  boost::system::error_code error;
  while (Clock::now() < load.until) {
    const auto begun = Clock::now();
    co_await asio::async_write(stream, asio::buffer(load.request),
                               asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    http::response<http::string_body> response;
    co_await http::async_read(stream, buffer, response, asio::redirect_error(asio::use_awaitable, error));
    if (error || response.result_int() != 200) {
      ++load.failed;
      co_return;
    }
    load.micros.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begun).count());
    if (!response.keep_alive()) co_return;
  }
}

asio::awaitable<void> client(Load& load, asio::ssl::context* tls, asio::io_context& io) {
  boost::system::error_code error;
  while (Clock::now() < load.until) {
    tcp::socket socket(io);
    co_await socket.async_connect(load.server, asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      ++load.failed;
      co_return;
    }
    ++load.connected;
    socket.set_option(tcp::no_delay(true));
    if (tls == nullptr) {
      co_await ask(load, socket);
      continue;
    }
    asio::ssl::stream<tcp::socket> secured(std::move(socket), *tls);
    co_await secured.async_handshake(asio::ssl::stream_base::client,
                                     asio::redirect_error(asio::use_awaitable, error));
    if (error) {
      ++load.failed;
      co_return;
    }
    co_await ask(load, secured);
  }
}

int load(unsigned short port, const char* path, int connections, double seconds, bool secured) {
  asio::io_context io{1};
  asio::ssl::context tls(asio::ssl::context::tls_client);
  Load all;
  all.request = std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  all.server = tcp::endpoint(asio::ip::address_v4::loopback(), port);
  all.until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (int i = 0; i < connections; ++i)
    asio::co_spawn(io, client(all, secured ? &tls : nullptr, io), asio::detached);
  io.run();
  std::sort(all.micros.begin(), all.micros.end());
  const auto at = [&](double part) {
    return all.micros.empty()
               ? 0.0
               : all.micros[static_cast<size_t>(part * static_cast<double>(all.micros.size() - 1))];
  };
  std::printf("{\"per_sec\":%.0f,\"p50_us\":%.0f,\"p99_us\":%.0f,\"failed\":%zu,\"connections\":%zu}\n",
              static_cast<double>(all.micros.size()) / seconds, at(0.5), at(0.99), all.failed, all.connected);
  return all.failed == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::strcmp(argv[1], "serve") == 0)
    return serve(static_cast<unsigned short>(std::atoi(argv[2])));
  if (argc == 7 && std::strcmp(argv[1], "load") == 0)
    return load(static_cast<unsigned short>(std::atoi(argv[2])), argv[3], std::atoi(argv[4]),
                std::atof(argv[5]), std::strcmp(argv[6], "tls") == 0);
  std::fputs("usage: livez serve PORT | livez load PORT PATH CONNECTIONS SECONDS tls|plain\n", stderr);
  return 2;
}
