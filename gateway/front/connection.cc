#include "gateway/front/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/error.hpp>
#include <cerrno>

#include "gateway/base/log.h"
#include "gateway/front/cors.h"
#include "gateway/front/http_text.h"
#include "gateway/front/names.h"
#include "gateway/front/router.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

// For a client that still sends: without a byte, and in all where it sends a body.
constexpr std::chrono::seconds kLinger{2}, kLingerForBody{30};
constexpr std::chrono::seconds kSilence{45}, kListenEvery{5};
constexpr uint64_t kLingerBytes = 4 << 20, kLingerBodyBytes = 1 << 30;

ApiError bad_request(std::string message) {
  return {.code = Code::kInvalidRequest, .message = std::move(message)};
}

ApiError bad_framing(const std::string& why) {
  return bad_request("the request is not well-formed HTTP/1.1: " + why);
}

}  // namespace

Connection::Connection(Server& server, Socket socket, const ListenerInfo& listener, std::string peer)
    : server_(server),
      socket_(std::move(socket), server.tls_for(listener)),
      listener_(listener),
      peer_(std::move(peer)),
      buffer_(server.limits_.max_header_bytes + kReadSize) {
  boost::system::error_code ignored;
  socket_.socket().native_non_blocking(true, ignored);
  if (listener_.unix_socket) {
    peer_uid_ = uid_of_peer(socket_.native_handle());
  } else {
    set_no_delay(socket_.native_handle());
    probe_when_silent(socket_.native_handle());
  }
  authorities_ = server_.authorities_;
  server_.connections_.insert(this);
  ++server_.peers_[peer_key(peer_)];
}

Connection::~Connection() {
  server_.connections_.erase(this);
  const auto mine = server_.peers_.find(peer_key(peer_));
  if (--mine->second == 0) server_.peers_.erase(mine);
}

void Connection::close() {
  closed_ = true;
  boost::system::error_code ignored;
  socket_.socket().close(ignored);
}

void Connection::sweep(Clock::time_point now) {
  if (pipelined_ && gone_ && ready_for(socket_.native_handle(), POLLRDHUP)) peer_is_gone();
  if (!idle_ && !listener_.unix_socket && now >= listen_for_life_) {
    listen_for_life_ = now + kListenEvery;
    if (silent_for(socket_.native_handle()).value_or(std::chrono::milliseconds::zero()) >= kSilence)
      return lose_peer();
  }
  if (now < deadline_) return;
  timed_out_ = true;
  deadline_ = Clock::time_point::max();
  boost::system::error_code ignored;
  socket_.socket().cancel(ignored);
}

Task<void> Connection::run() {
  const auto self = shared_from_this();
  try {
    if (socket_.encrypted() && !co_await handshake()) co_return close();
    while (!closed_ && co_await read_head()) {
      co_await one_request();
      if (!keep_alive()) break;
    }
  } catch (const ClientGone&) {
  } catch (const boost::system::system_error&) {
  }
  if (!closed_) co_await leave();
}

Task<bool> Connection::handshake() {
  deadline_ = Clock::now() + server_.handshake_within_;
  boost::system::error_code error;
  co_await socket_.async_handshake(asio::redirect_error(asio::use_awaitable, error));
  deadline_ = Clock::time_point::max();
  if (error) {
    log::debug("tls_handshake_failed",
               {{"peer", peer_}, {"reason", timed_out_ ? "it took too long" : error.message()}});
    co_return false;
  }
  if (authorities_ == server_.authorities_) certificate_names = socket_.verified_names();
  co_return true;
}

Task<void> Connection::say_goodbye() {
  deadline_ = Clock::now() + kLinger;
  boost::system::error_code ignored;
  co_await socket_.async_say_goodbye(asio::redirect_error(asio::use_awaitable, ignored));
  deadline_ = Clock::time_point::max();
}

// Where the client may still be sending (a body that was not read, requests behind a refused one), our side
// is closed first and the rest is thrown away for a while, or it would see a reset instead of the answer:
// many send all of a body before they read.
Task<void> Connection::leave() {
  boost::system::error_code ignored;
  idle_ = true;
  if (begun_ && !finished_) {  // what it has not taken is not kept for it
    socket_.socket().set_option(Socket::linger(true, 0), ignored);
    co_return close();
  }
  if (socket_.encrypted()) co_await say_goodbye();
  socket_.socket().shutdown(Socket::shutdown_send, ignored);
  if (finished_ && (!head_done_ || !body_is_read() || must_close_)) {
    static std::array<char, 128 * 1024> dropped;  // nobody reads it
    const bool sends_body = head_done_ && !body_is_read();
    const auto until = Clock::now() + (sends_body ? kLingerForBody : kLinger);
    uint64_t left = kLingerBytes;
    if (sends_body) left += chunks_ ? kLingerBodyBytes : std::min(body_left_, kLingerBodyBytes);
    while (left > 0 && Clock::now() < until) {
      deadline_ = std::min(until, Clock::now() + kLinger);
      const size_t n = co_await socket_.socket().async_read_some(
          asio::buffer(dropped), asio::redirect_error(asio::use_awaitable, ignored));
      if (ignored) break;
      left -= std::min<uint64_t>(n, left);
    }
  }
  close();
}

bool Connection::keep_alive() const {
  return !closed_ && finished_ && !must_close_ && !server_.draining_ && body_is_read() &&
         parser_->get().keep_alive();
}

// Reads more into buffer_. False at the end of the stream or at the deadline.
Task<bool> Connection::receive() {
  boost::system::error_code error;
  const size_t n = co_await socket_.async_read_some(buffer_.prepare(kReadSize),
                                                    asio::redirect_error(asio::use_awaitable, error));
  buffer_.commit(n);
  co_return !error && n > 0;
}

// Nothing of the last request is left for the next.
void Connection::start_request() {
  const ServerLimits& limits = server_.limits_;
  parser_.emplace();
  parser_->eager(false);
  parser_->header_limit(limits.max_header_bytes);
  parser_->body_limit(boost::none);
  begun_ = finished_ = chunked_ = must_close_ = continue_sent_ = pipelined_ = head_only_ = false;
  head_done_ = routed = timed_out_ = false;
  principal = {};
  left_to_write_.reset();
  cors_origin.clear();
  framing_ = {};
  body_left_ = 0;
  chunks_.reset();
  reading_ = Pace(limits.body_idle, limits.min_bytes_per_sec);
  writing_ = Pace(limits.write, limits.min_bytes_per_sec);
  end_ = {};
  ++serial_;
}

// False when the client closed between requests. A bad head is answered here.
Task<bool> Connection::read_head() {
  start_request();
  const std::optional<ApiError> refusal = co_await await_head();
  deadline_ = Clock::time_point::max();
  if (idle_) co_return false;
  end_.asked = Clock::now();
  request_id = new_request_id();
  if (!refusal) co_return true;
  must_close_ = true;
  end_.refused = refusal->message;
  try {
    co_await answer_error(*refusal);
  } catch (const ClientGone&) {
  }
  end_.ended = Clock::now();
  server_.hooks_.finished(*this, peer_, end_);
  co_return false;
}

// Stays idle_ when no byte came before the end of the connection or the idle limit.
Task<std::optional<ApiError>> Connection::await_head() {
  HeadScanner scanner(server_.limits_.max_header_bytes);
  idle_ = true;
  for (;;) {
    if (buffer_.size() > 0) {
      if (std::exchange(idle_, false)) {
        end_.began = Clock::now();
        deadline_ = end_.began + server_.limits_.header;
      }
      const auto size = scanner.scan({static_cast<const char*>(buffer_.data().data()), buffer_.size()});
      if (size) co_return parse_head(*size);
      if (!scanner.problem().empty()) co_return bad_framing(scanner.problem());
    } else {
      const ServerLimits& limits = server_.limits_;
      deadline_ = Clock::now() + (served_ == 0 ? std::min(limits.header, limits.idle) : limits.idle);
    }
    if (co_await receive()) continue;
    if (idle_) co_return std::nullopt;
    if (timed_out_)
      co_return ApiError{.code = Code::kRequestTimeout, .message = "the request's header took too long"};
    co_return bad_framing("it ends inside its header");
  }
}

std::optional<ApiError> Connection::parse_head(size_t size) {
  const std::string_view head(static_cast<const char*>(buffer_.data().data()), size);
  const HeadVerdict verdict =
      judge_head(head, {server_.limits_.max_header_bytes, server_.limits_.max_headers});
  if (!verdict.problem.empty()) return bad_framing(verdict.problem);
  boost::system::error_code error;
  const size_t parsed = parser_->put(asio::buffer(head), error);
  if (!parser_->is_header_done() || parsed != size) return bad_framing(error.message());
  buffer_.consume(size);
  framing_ = verdict.body;
  body_left_ = framing_.length.value_or(0);
  if (framing_.chunked) chunks_.emplace();
  head_done_ = true;
  ++served_;
  return std::nullopt;
}

Task<void> Connection::one_request() {
  std::optional<ApiError> refusal;
  try {
    co_await dispatch();
  } catch (const ApiError& error) {
    refusal = error;
  } catch (const ClientGone&) {
    must_close_ = true;
  } catch (const std::exception& error) {
    log::error("handler_failed", {{"request_id", request_id}, {"reason", error.what()}});
    refusal = ApiError{.code = Code::kInternal,
                       .message = "an internal error; the log has it under this request_id"};
  }
  gone_ = nullptr;
  if (watching_) {
    watching_ = false;
    boost::system::error_code ignored;
    socket_.socket().cancel(ignored);
  }
  memory = {};
  try {
    if (refusal && refusal->code == Code::kRateLimited) co_await hold_back();
    if (refusal && !begun_) co_await answer_error(*refusal);
  } catch (const ClientGone&) {
  }
  if (!finished_) must_close_ = true;
  end_.complete = finished_;
  end_.ended = Clock::now();
  server_.hooks_.finished(*this, peer_, end_);
}

// Who was refused, and calls again at once, takes no more of the front than others do.
Task<void> Connection::hold_back() {
  const std::string caller =
      principal.tenant.empty() ? "peer " + peer_key(peer_) : "tenant " + principal.tenant;
  const auto wait = server_.refusals_.hold(caller, Clock::now());
  if (wait <= Clock::duration::zero() || server_.draining_) co_return;
  asio::steady_timer timer(server_.io_, wait);
  boost::system::error_code ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

Task<void> Connection::dispatch() {
  head_only_ = parser_->get().method() == http::verb::head;
  server_.hooks_.look_at_origin(*this);
  if (const auto expect = header("Expect"); !expect.empty() && !equal_no_case(expect, "100-continue"))
    throw bad_request("unknown Expect header");
  if (parser_->get().method() == http::verb::options && is_preflight(*this))
    co_return co_await answer_preflight(*this);
  route_request();
  server_.hooks_.authenticate(*this, listener_, peer_uid_, peer_);
  check_query(route, query);
  co_await server_.hooks_.handle(*this);
}

void Connection::route_request() {
  Routed found = route_target(to_view(parser_->get().method_string()), to_view(parser_->get().target()));
  route = found.route;
  routed = true;
  agent_param = std::move(found.agent);
  path_param = std::move(found.path);
  query = found.query;
}

std::string_view Connection::header(std::string_view name) const {
  const auto found = parser_->get().find(boost::beast::string_view(name.data(), name.size()));
  return found == parser_->get().end() ? std::string_view{} : to_view(found->value());
}

bool Connection::has_header(std::string_view name) const {
  return parser_->get().count(boost::beast::string_view(name.data(), name.size())) > 0;
}

bool Connection::forwarded() const {
  const auto& fields = parser_->get();
  return std::any_of(fields.begin(), fields.end(),
                     [](const auto& field) { return names_a_proxy(to_view(field.name_string())); });
}

std::optional<uint64_t> Connection::content_length() const { return framing_.length; }

void Connection::on_gone(GoneCallback callback) {
  gone_ = std::move(callback);
  if (gone_ && !watching_) watch_peer();
}

// Readable means closed, or a pipelined request: then sweep() looks for the close.
void Connection::watch_peer() {
  if (buffer_.size() > 0) {
    pipelined_ = true;
    return;
  }
  watching_ = true;
  socket_.async_wait(
      Socket::wait_read, [self = shared_from_this(), serial = serial_](boost::system::error_code error) {
        if (error || serial != self->serial_ || !self->watching_) return;
        self->watching_ = false;
        char byte = 0;
        const ssize_t n = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
        if (n > 0) {
          self->pipelined_ = true;
        } else if (n == 0 || errno != EAGAIN) {
          self->peer_is_gone();
        } else {
          self->watch_peer();
        }
      });
}

void Connection::lose_peer() {
  peer_is_gone();
  close();
}

void Connection::peer_is_gone() {
  must_close_ = true;
  if (gone_) std::exchange(gone_, nullptr)();
}

}  // namespace isogate::front
