#include "gateway/front/http/server.h"

#include <sys/socket.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/front/base/names.h"
#include "gateway/front/http/connection.h"
#include "gateway/front/http/http_text.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
using asio::generic::stream_protocol;

namespace {
constexpr std::chrono::milliseconds kSweepEvery{250};
constexpr std::chrono::milliseconds kAcceptPause{100};

stream_protocol protocol_of(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  return {address.ss_family, 0};
}

// Does not wait: what the socket does not take at once is lost.
void refuse(stream_protocol::socket& socket, const std::string& why) {
  const ApiError error{.code = Code::kRateLimited, .message = why, .retry_after_sec = 1};
  const std::string id = new_request_id();
  const std::string body = error.body(id);
  const AnswerHead head{.status = error.http_status(),
                        .content_type = "application/json",
                        .length = body.size(),
                        .close = true,
                        .request_id = id};
  Headers headers;
  headers.emplace_back("Retry-After", "1");
  const std::string answer = head.text(headers) + body;
  (void)!::send(socket.native_handle(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  boost::system::error_code ignored;
  socket.shutdown(stream_protocol::socket::shutdown_send, ignored);
}

}  // namespace

// Places that nobody on the public listeners can take.
constexpr size_t kForOperators = 64;

struct Server::Listener {
  Listener(asio::io_context& io, Fd socket, ListenerInfo what)
      : acceptor(io), pause(io), info(std::move(what)) {
    const auto protocol = protocol_of(socket.get());
    acceptor.assign(protocol, socket.release());
    acceptor.native_non_blocking(true);
  }
  asio::basic_socket_acceptor<stream_protocol> acceptor;
  asio::steady_timer pause;
  ListenerInfo info;
};

Server::Server(asio::io_context& io, LimitsConfig limits, ServerHooks hooks)
    : io_(io), limits_(limits), hooks_(std::move(hooks)), sweeper_(io) {
  asio::co_spawn(io_, sweep_loop(), asio::detached);
}

Server::~Server() = default;

void Server::set_limits(LimitsConfig limits) {
  limits_ = limits;
  for (Connection* connection : connections_) connection->limits_changed();
}

void Server::set_tls(TlsContext context, std::chrono::seconds handshake_within) {
  tls_ = std::move(context);
  handshake_within_ = handshake_within;
}

void Server::forget_certificates() {
  ++authorities_;
  for (Connection* connection : connections_) connection->certificate_names.clear();
}

void Server::end_unadmitted() {
  const std::vector<Connection*> all(connections_.begin(), connections_.end());
  for (Connection* connection : all) {
    if (connections_.contains(connection)) connection->check_admission();
  }
}

TlsContext Server::tls_for(const ListenerInfo& listener) const {
  return listener.unix_socket || listener.kind == ListenerKind::kMetrics ? TlsContext() : tls_;
}

void Server::listen(Fd socket, ListenerInfo info) {
  listeners_.push_back(std::make_unique<Listener>(io_, std::move(socket), std::move(info)));
  asio::co_spawn(io_, accept_loop(*listeners_.back()), asio::detached);
}

Task<void> Server::accept_loop(Listener& listener) {
  bool paused = false;
  for (;;) {
    boost::system::error_code error;
    auto socket = co_await listener.acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (error == asio::error::operation_aborted) break;
    const std::string why = error ? error.message() : admit(std::move(socket), listener.info);
    if (why.empty()) {
      paused = false;
      continue;
    }
    if (error == asio::error::connection_aborted) continue;
    // Out of descriptors or memory: those who wait stay in the kernel's queue.
    if (!std::exchange(paused, true))
      log::warn("accept_paused", {{"listener", listener.info.address}, {"reason", why}});
    listener.pause.expires_after(kAcceptPause);
    co_await listener.pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
  }
}

std::string Server::admit(stream_protocol::socket socket, const ListenerInfo& info) try {
  const std::string peer = info.unix_socket ? "uid " + std::to_string(uid_of_peer(socket.native_handle()))
                                            : peer_address(socket.native_handle());
  if (const auto refused = refusal(peer, info)) {
    hooks_.connection_refused(refused->limit);
    if (hooks_.admit_line(peer, "connection_refused"))
      log::warn("connection_refused", {{"listener", info.address}, {"peer", peer}, {"reason", refused->why}});
    if (!tls_for(info)) refuse(socket, refused->why);  // before a handshake nothing can be sent
    return "";
  }
  auto connection = std::make_shared<Connection>(*this, std::move(socket), info, peer);
  asio::co_spawn(io_, connection->run(), [connection](const std::exception_ptr&) {});
  return "";
} catch (const std::exception& failure) {
  return failure.what();
}

std::optional<Server::Refusal> Server::refusal(const std::string& peer, const ListenerInfo& info) const {
  const bool metrics = info.kind == ListenerKind::kMetrics;
  const size_t more = info.unix_socket || metrics ? kForOperators : 0;
  if (connections_.size() >= limits_.max_connections + more) {
    return Refusal{"max_connections",
                   "the gateway has " + std::to_string(connections_.size()) +
                       " open connections (limits.max_connections, or what its RLIMIT_NOFILE leaves)"};
  }
  // Of its address the public listeners have some: a proxy, or a program beside the scraper.
  const auto found = peers_.find(peer_key(peer));
  if (found == peers_.end() ||
      found->second < limits_.max_connections_per_peer + (metrics ? kForOperators : 0))
    return std::nullopt;
  return Refusal{"max_connections_per_peer",
                 "this address has " + std::to_string(found->second) +
                     " open connections (limits.max_connections_per_peer); use them for further requests"};
}

Task<void> Server::sweep_loop() {
  for (;;) {
    sweeper_.expires_after(kSweepEvery);
    boost::system::error_code error;
    co_await sweeper_.async_wait(asio::redirect_error(asio::use_awaitable, error));
    if (error) co_return;
    try {
      sweep();
    } catch (const std::exception& failure) {  // the next time comes soon
      log::warn("sweep_failed", {{"reason", failure.what()}});
    }
  }
}

void Server::sweep() {
  hooks_.swept();
  log::flush_records();
  const auto now = std::chrono::steady_clock::now();
  const std::vector<Connection*> all(connections_.begin(), connections_.end());
  for (Connection* connection : all) {
    if (connections_.contains(connection)) connection->sweep(now);
  }
}

void Server::drain() { draining_ = true; }

size_t Server::busy() const {
  size_t count = 0;
  for (const Connection* connection : connections_) count += connection->idle() ? 0 : 1;
  return count;
}

void Server::close_all() {
  sweeper_.cancel();
  const std::vector<Connection*> all(connections_.begin(), connections_.end());
  for (Connection* connection : all) connection->close();
}

}  // namespace isogate::front
