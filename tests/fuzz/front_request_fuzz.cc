// Any bytes through the real connection: heads, bodies, pipelines. Whatever reaches a handler, Beast's own
// parser reads the same way from the same bytes; nothing after a refusal is parsed; every request gets one
// response.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <string>
#include <utility>
#include <vector>

#include "gateway/front/api/router.h"
#include "gateway/front/http/connection.h"
#include "tests/fuzz/require.h"

namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using namespace isogate::front;

enum Reading { kWhole, kPiped, kNone };

struct Seen {
  bool has_body = false;
  std::string body;
};

struct Run {
  Reading reading = kWhole;
  std::vector<Seen> handled;  // in order; without a body also those that reached no handler
  bool asked = false;         // a handler was called for the current request
  size_t ended = 0, refused = 0;
} run_now;

asio::awaitable<void> read_piped(Exchange& exchange, std::string& body) {
  int ends[2];
  require(::pipe2(ends, O_CLOEXEC | O_NONBLOCK) == 0);
  const isogate::Fd out(ends[0]);
  PipeEnd in(co_await asio::this_coro::executor, ends[1]);
  for (;;) {
    const size_t n = co_await exchange.read_body_to_pipe(in);
    if (n == 0) break;
    const size_t before = body.size();
    body.resize(before + n);
    require(::read(out.get(), body.data() + before, n) == static_cast<ssize_t>(n));
  }
}

asio::awaitable<void> handle(Exchange& exchange) {
  require(run_now.refused == 0);
  check_query(*exchange.route, exchange.query);
  Seen seen;
  seen.has_body = run_now.reading != kNone;
  if (run_now.reading == kWhole) seen.body = co_await exchange.read_body(8192);
  if (run_now.reading == kPiped) co_await read_piped(exchange, seen.body);
  run_now.asked = true;
  run_now.handled.push_back(std::move(seen));
  co_await exchange.send(200, "text/plain", "ok");
}

struct Front {
  asio::io_context io{1};
  Server server{io,
                {.max_connections = 1000,
                 .max_connections_per_peer = 1000,
                 .max_requests_per_connection = 50,
                 .max_header_bytes = 2048,
                 .max_headers = 20,
                 .header_timeout_sec = 10,
                 .body_idle_timeout_sec = 10,
                 .idle_timeout_sec = 10,
                 .write_timeout_sec = 10,
                 .min_bytes_per_sec = 0},
                {[](Exchange&) {}, [](Exchange& exchange, const ListenerInfo&) { route_exchange(exchange); },
                 [](Exchange&, const ListenerInfo&, int, const std::string&) {}, handle,
                 [](const Exchange& exchange, const ListenerInfo&, const ApiError& error) {
                   return std::pair(error.http_status(), error.body(exchange.request_id));
                 },
                 [](const Exchange&, const std::string&, const RequestEnd& end) {
                   ++run_now.ended;
                   if (!std::exchange(run_now.asked, false)) run_now.handled.emplace_back();
                   if (!end.refused.empty()) ++run_now.refused;
                 }}};
};

// What was received until the connection ended.
std::string converse(std::string_view bytes) {
  static auto* front = new Front;
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
  const isogate::Fd client(ends[0]);
  {
    Connection::Socket socket(front->io, asio::generic::stream_protocol(AF_UNIX, 0), ends[1]);
    auto connection = std::make_shared<Connection>(front->server, std::move(socket),
                                                   ListenerInfo{"unix:/x", true}, "uid 0");
    asio::co_spawn(front->io, connection->run(), [connection](const std::exception_ptr&) {});
  }
  std::string said;
  bool open = true;
  while (front->server.connections() > 0) {
    if (!bytes.empty()) {
      const ssize_t n = ::send(client.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
      if (n < 0 && errno != EAGAIN) bytes = {};
    }
    if (bytes.empty() && open) open = ::shutdown(client.get(), SHUT_WR) != 0;
    char part[65536];
    const ssize_t n = ::recv(client.get(), part, sizeof part, 0);
    if (n > 0) said.append(part, static_cast<size_t>(n));
    if (front->io.stopped()) front->io.restart();  // it had run out of work, even of timers
    if (front->io.poll() == 0 && n <= 0) front->io.run_one();
  }
  for (char part[65536];;) {
    const ssize_t n = ::recv(client.get(), part, sizeof part, 0);
    if (n <= 0) break;
    said.append(part, static_cast<size_t>(n));
  }
  return said;
}

size_t count(std::string_view text, std::string_view word) {
  size_t found = 0;
  for (size_t at = 0; (at = text.find(word, at)) != std::string_view::npos; at += word.size()) ++found;
  return found;
}

// Every request that was handled, as Beast reads it.
void compare(std::string_view bytes) {
  for (const Seen& seen : run_now.handled) {
    if (!seen.has_body) return;  // an unread body need not be well-formed
    http::request_parser<http::string_body> parser;
    parser.eager(true);
    parser.body_limit(boost::none);
    boost::system::error_code error;
    while (!parser.is_done() && !bytes.empty()) {
      const size_t n = parser.put(asio::buffer(bytes), error);
      if (error == http::error::need_more) error = {};
      require(!error);
      bytes.remove_prefix(n);
      if (n == 0) break;
    }
    require(parser.is_done());
    require(parser.get().body() == seen.body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 60000) return 0;
  run_now = Run{};
  run_now.reading = static_cast<Reading>(data[0] % 3);
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string said = converse(bytes);
  require(said.empty() || said.starts_with("HTTP/1.1 "));
  require(run_now.ended >= run_now.handled.size());
  require(run_now.refused <= 1);
  require(count(said, "\r\nX-Request-Id: ") <= run_now.ended);
  compare(bytes);
  return 0;
}
