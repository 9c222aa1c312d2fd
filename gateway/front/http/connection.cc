#include "gateway/front/http/connection.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <cstring>

#include "gateway/front/base/names.h"
#include "gateway/front/http/cors.h"
#include "gateway/front/http/http_text.h"
#include "gateway/front/http/websocket_server.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace http = boost::beast::http;

namespace {

using std::chrono::seconds;

// For a client that still sends: without a byte, and in all where it sends a body.
constexpr seconds kLinger{2}, kLingerForBody{30};
constexpr seconds kPeerSilence{45}, kSilenceCheckEvery{5};
constexpr size_t kBodyChunk = 256 * 1024, kSpliceAtOnce = 1 << 20, kCopyAtOnce = 64 * 1024,
                 kWriteHeld = 1 << 20;
constexpr uint64_t kLingerBytes = 4 << 20, kLingerBodyBytes = 1 << 30;

ApiError bad_framing(const std::string& why) {
  return invalid_request("the request is not well-formed HTTP/1.1: " + why);
}

}  // namespace

Connection::Connection(Server& server, Socket socket, const ListenerInfo& listener, std::string peer)
    : server_(server),
      socket_(std::move(socket), server.tls_for(listener)),
      listener_(listener),
      peer_(std::move(peer)),
      peer_key_(peer_key(peer_)),
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
  uint32_t& of_peer = server_.peers_[peer_key_];
  server_.connections_.insert(this);  // what may throw is before
  ++of_peer;
}

Connection::~Connection() {
  server_.connections_.erase(this);
  const auto mine = server_.peers_.find(peer_key_);
  if (--mine->second == 0) server_.peers_.erase(mine);
}

void Connection::close() {
  closed_ = true;
  boost::system::error_code ignored;
  socket_.socket().close(ignored);
}

void Connection::abort() {
  boost::system::error_code ignored;
  socket_.socket().set_option(Socket::linger(true, 0), ignored);
  lose_peer();
}

void Connection::sweep(Clock::time_point now) {
  if (pipelined_ && !gone_.killed() && ready_for(socket_.native_handle(), POLLRDHUP)) peer_is_gone();
  if (!idle_ && !listener_.unix_socket && now >= next_silence_check_) {
    next_silence_check_ = now + kSilenceCheckEvery;
    const auto silent = silent_for(socket_.native_handle()).value_or(std::chrono::milliseconds::zero());
    const bool owed_before = std::exchange(peer_owes_, silent > silent.zero());
    if (owed_before && silent >= kPeerSilence) return lose_peer();
  }
  if (now < deadline_ && now < write_deadline_) return;
  timed_out_ = true;
  deadline_ = write_deadline_ = Clock::time_point::max();
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

Task<void> Connection::close_tls() {
  deadline_ = Clock::now() + kLinger;
  boost::system::error_code ignored;
  co_await socket_.async_close_tls(asio::redirect_error(asio::use_awaitable, ignored));
  deadline_ = Clock::time_point::max();
}

// Where the client may still be sending (a body that was not read, requests behind a refused one), our side
// is closed first and the rest is thrown away for a while, or it would see a reset instead of the answer:
// many send all of a body before they read.
Task<void> Connection::leave() {
  boost::system::error_code ignored;
  idle_ = true;
  if (begun_ && !finished_) co_return abort();  // what it has not taken is not kept for it
  if (socket_.encrypted()) co_await close_tls();
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
  parser_.emplace();
  parser_->eager(false);
  parser_->body_limit(boost::none);
  begun_ = finished_ = chunked_ = must_close_ = continue_settled_ = pipelined_ = head_only_ = left_ = false;
  head_done_ = timed_out_ = false;
  route = nullptr;
  principal = {};
  unadmitted.reset();
  left_to_write_.reset();
  cors_origin.clear();
  agent.clear();
  error_code = {};
  fault.clear();
  framing_ = {};
  body_left_ = 0;
  chunks_.reset();
  end_ = {};
  ++serial_;
}

// Those of the request that begins now.
void Connection::take_limits() {
  const LimitsConfig& limits = server_.limits_;
  buffer_.max_size(limits.max_header_bytes + kReadSize);
  parser_->header_limit(limits.max_header_bytes);
  reading_ = Pace(seconds(limits.body_idle_timeout_sec), limits.min_bytes_per_sec);
  writing_ = Pace(seconds(limits.write_timeout_sec), limits.min_bytes_per_sec);
  deadline_ = end_.began + seconds(limits.header_timeout_sec);
}

void Connection::wait_idle() {
  const LimitsConfig& limits = server_.limits_;
  uint32_t most = limits.idle_timeout_sec;
  if (served_ == 0) most = std::min(most, limits.header_timeout_sec);
  deadline_ = Clock::now() + seconds(most);
}

void Connection::limits_changed() {
  if (awaits_head_) wait_idle();
}

// Of a body that is still to come nothing more is read.
void Connection::check_admission() {
  const bool under_way = !idle_ && !principal.tenant.empty();
  if (!under_way || unadmitted.killed() || still_admitted()) return;
  log::info("no_longer_admitted", {{"request_id", request_id},
                                   {"key", principal.key_name},
                                   {"tenant", principal.tenant},
                                   {"agent_id", agent}});
  unadmitted.kill();
  if (!body_is_read()) abort();
}

bool Connection::still_admitted() {
  if (principal.of_sandbox) return true;
  const Principal held = principal;
  bool same = false;
  try {
    server_.hooks_.authenticate(*this, listener_, peer_uid_, peer_);
    same = principal.tenant == held.tenant;
  } catch (const ApiError& error) {  // a key of E2B's listener may name a sandbox that has just ended
    same = error.code == Code::kSandboxNotFound && principal.tenant == held.tenant;
  }
  principal = held;
  return same;
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
  note(*refusal);
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
  idle_ = true;
  if (buffer_.size() == 0) {
    wait_idle();
    awaits_head_ = true;
    const bool came = co_await receive();
    awaits_head_ = false;
    if (!came) co_return std::nullopt;
  }
  idle_ = false;
  end_.began = Clock::now();
  take_limits();
  const HeadLimits most{server_.limits_.max_header_bytes, server_.limits_.max_headers};
  HeadScanner scanner(most.bytes);
  for (;;) {
    const auto size = scanner.scan({static_cast<const char*>(buffer_.data().data()), buffer_.size()});
    if (size) co_return parse_head(*size, most);
    if (!scanner.problem().empty()) co_return bad_framing(scanner.problem());
    if (co_await receive()) continue;
    if (timed_out_)
      co_return ApiError{.code = Code::kRequestTimeout, .message = "the request's header took too long"};
    co_return bad_framing("it ends inside its header");
  }
}

std::optional<ApiError> Connection::parse_head(size_t size, const HeadLimits& most) {
  const std::string_view head(static_cast<const char*>(buffer_.data().data()), size);
  const HeadVerdict verdict = judge_head(head, most);
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
  if (refusal) note(*refusal);
  gone_.reset();
  pipelined_ = false;
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
  end_.complete = finished_ && !left_;
  end_.ended = Clock::now();
  server_.hooks_.finished(*this, peer_, end_);
}

// Who was refused, and calls again at once, takes no more of the front than others do.
Task<void> Connection::hold_back() {
  const std::string caller = principal.tenant.empty() ? "peer " + peer_key_ : "tenant " + principal.tenant;
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
    throw invalid_request("unknown Expect header");
  if (parser_->get().method() == http::verb::options && is_preflight(*this))
    co_return co_await answer_preflight(*this);
  server_.hooks_.route(*this, listener_);
  server_.hooks_.authenticate(*this, listener_, peer_uid_, peer_);
  co_await server_.hooks_.handle(*this);
}

std::string_view Connection::header(std::string_view name) const {
  const auto found = parser_->get().find(boost::beast::string_view(name.data(), name.size()));
  return found == parser_->get().end() ? std::string_view{} : to_view(found->value());
}

std::string_view Connection::method() const { return to_view(parser_->get().method_string()); }

std::string_view Connection::target() const { return to_view(parser_->get().target()); }

void Connection::each_header(
    const std::function<void(std::string_view name, std::string_view value)>& take) const {
  for (const auto& field : parser_->get()) take(to_view(field.name_string()), to_view(field.value()));
}

bool Connection::has_header(std::string_view name) const {
  return parser_->get().count(boost::beast::string_view(name.data(), name.size())) > 0;
}

Killer& Connection::watch_client() {
  if (!watching_ && !gone_.killed()) watch_peer();
  return gone_;
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
  close();
  peer_is_gone();
}

void Connection::peer_is_gone() {
  must_close_ = true;
  if (!begun_) left_ = true;
  gone_.kill();
}

Task<void> Connection::continue_if_expected() {
  const bool http10 = parser_->get().version() == 10;  // RFC 9110, 10.1.1: it gets no 100
  const bool first = !std::exchange(continue_settled_, true);
  if (!first || http10 || header("Expect").empty() || buffer_.size() > 0 || begun_ || body_is_read())
    co_return;
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  co_await write_raw(asio::const_buffer(asio::buffer(kContinue)));
}

Task<size_t> Connection::read_body_some(char* data, size_t size) {
  if (closed_) throw ClientGone{};
  co_await continue_if_expected();
  while (!body_is_read()) {
    if (const size_t n = take_body(data, size); n > 0) co_return n;
    if (!chunks_) {  // past buffer_, which is empty
      const size_t n = co_await receive_body(asio::buffer(data, std::min<uint64_t>(size, body_left_)));
      body_left_ -= n;
      end_.bytes_in += n;
      co_return n;
    }
    if (!body_is_read()) buffer_.commit(co_await receive_body(buffer_.prepare(kReadSize)));
  }
  co_return 0;
}

Task<size_t> Connection::receive_body(asio::mutable_buffer to) {
  boost::system::error_code error;
  deadline_ = reading_.wait_until(Clock::now());
  const size_t n = co_await socket_.async_read_some(to, asio::redirect_error(asio::use_awaitable, error));
  deadline_ = Clock::time_point::max();
  reading_.waited(Clock::now());
  reading_.came(n);
  if (error || n == 0) body_was_cut();
  co_return n;
}

// What buffer_ has of the body.
size_t Connection::take_body(char* data, size_t size) {
  std::string_view in(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  size_t n = 0;
  if (chunks_) {
    n = chunks_->decode(in, data, size);
    buffer_.consume(buffer_.size() - in.size());
    if (!chunks_->problem().empty()) {
      must_close_ = true;
      throw invalid_request("the request's body is not well-formed: " + std::string(chunks_->problem()));
    }
  } else {
    n = static_cast<size_t>(std::min<uint64_t>({in.size(), size, body_left_}));
    in.copy(data, n);
    buffer_.consume(n);
    body_left_ -= n;
  }
  end_.bytes_in += n;
  return n;
}

Task<std::string> Connection::read_body(uint64_t cap) {
  const auto length = framing_.length;
  const ApiError too_large{
      .code = Code::kFileTooLarge,
      .message = "the body is over " + std::to_string(cap) + " bytes; send files with PUT /workspace/files"};
  if (length && *length > cap) throw too_large;
  std::string body;
  if (body_is_read()) co_return body;
  const uint64_t most = length ? *length + 1 : cap + 1;
  const auto grow = [&](uint64_t size) {
    memory.hold(std::min(most, size));
    body.resize(std::min(most, size));
  };
  grow(kReadSize);
  size_t used = 0;
  for (;;) {
    const size_t n = co_await read_body_some(body.data() + used, body.size() - used);
    if (n == 0) break;
    used += n;
    if (used > cap) throw too_large;
    if (used == body.size()) grow(body.size() * 2);
  }
  body.resize(used);
  memory.hold(used);
  co_return body;
}

// A plain body of known length goes from socket to pipe inside the kernel; others go through the parser.
Task<size_t> Connection::read_body_to_pipe(PipeEnd& pipe) {
  if (closed_) throw ClientGone{};
  if (!chunks_ && !socket_.encrypted()) co_return co_await splice_body(pipe);
  std::string chunk(kBodyChunk, '\0');
  const size_t size = co_await read_body_some(chunk.data(), chunk.size());
  boost::system::error_code error;
  co_await asio::async_write(pipe, asio::buffer(chunk.data(), size),
                             asio::redirect_error(asio::use_awaitable, error));
  if (error) throw PipeClosed{};
  co_return size;
}

Task<size_t> Connection::splice_body(PipeEnd& pipe) {
  boost::system::error_code error;
  if (body_left_ == 0) co_return 0;
  co_await continue_if_expected();
  if (buffer_.size() > 0) {
    const size_t size = std::min<uint64_t>(buffer_.size(), body_left_);
    co_await asio::async_write(pipe, asio::buffer(buffer_.data().data(), size),
                               asio::redirect_error(asio::use_awaitable, error));
    if (error) throw PipeClosed{};
    buffer_.consume(size);
    body_left_ -= size;
    end_.bytes_in += size;
    co_return size;
  }
  for (;;) {
    if (!pipe.is_open()) throw PipeClosed{};
    const size_t most = std::min<uint64_t>(body_left_, kSpliceAtOnce);
    const ssize_t n = ::splice(socket_.native_handle(), nullptr, pipe.native_handle(), nullptr, most,
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE);
    if (n > 0) {
      body_left_ -= static_cast<uint64_t>(n);
      end_.bytes_in += static_cast<uint64_t>(n);
      reading_.came(static_cast<uint64_t>(n));
      co_return static_cast<size_t>(n);
    }
    if (n < 0 && errno == EPIPE) throw PipeClosed{};
    if (n == 0 || (errno != EAGAIN && errno != EINTR)) body_was_cut();
    const bool came = ready_for(socket_.native_handle(), POLLIN);
    if (came && ready_for(pipe.native_handle(), POLLOUT)) {  // splice stops at urgent data, recv does not
      if (!co_await receive()) body_was_cut();
      co_return co_await splice_body(pipe);
    }
    if (came) {
      co_await pipe.async_wait(PipeEnd::wait_write, asio::redirect_error(asio::use_awaitable, error));
      if (error) throw PipeClosed{};
    } else {
      deadline_ = reading_.wait_until(Clock::now());
      co_await socket_.async_wait(Socket::wait_read, asio::redirect_error(asio::use_awaitable, error));
      deadline_ = Clock::time_point::max();
      reading_.waited(Clock::now());
    }
    if (error) body_was_cut();
  }
}

void Connection::body_was_cut() {
  must_close_ = true;
  if (timed_out_)
    throw ApiError{.code = Code::kRequestTimeout, .message = "the request's body stopped coming"};
  throw ClientGone{};
}

template <typename Buffers>
Task<void> Connection::write_raw(Buffers buffers) {
  if (broken_) throw ClientGone{};
  boost::system::error_code error;
  size_t written = 0;
  // Asked before each write: the deadline moves on with what the client takes.
  const auto pace = [&](const boost::system::error_code& failed, size_t so_far) -> size_t {
    const auto now = Clock::now();
    writing_.waited(now);
    writing_.came(so_far - std::exchange(written, so_far));
    write_deadline_ = writing_.wait_until(now);
    return failed ? 0 : kWriteHeld;
  };
  writing_.start(Clock::now());
  const size_t all =
      co_await asio::async_write(socket_, buffers, pace, asio::redirect_error(asio::use_awaitable, error));
  write_deadline_ = Clock::time_point::max();
  writing_.waited(Clock::now());
  writing_.came(all - written);
  if (error) {
    must_close_ = broken_ = true;
    throw ClientGone{};
  }
}

AnswerHead Connection::start_answer(unsigned status, std::optional<uint64_t> length) {
  end_.status = left_ ? 0 : status;
  end_.answered = Clock::now();
  begun_ = true;
  const bool http10 = parser_->get().version() == 10;
  if (!body_is_read() || served_ >= server_.limits_.max_requests_per_connection) must_close_ = true;
  chunked_ = !length && !http10;
  if (!length && http10) must_close_ = true;
  const bool close = must_close_ || server_.draining_ || !parser_->get().keep_alive();
  if (close) must_close_ = true;
  return {.status = status,
          .length = length,
          .chunked = chunked_,
          .close = close,
          .keep_alive_10 = http10 && !close,
          .request_id = request_id,
          .cors_origin = cors_origin};
}

std::string Connection::head_of(unsigned status, std::string_view content_type,
                                std::optional<uint64_t> length, const Headers& headers) {
  AnswerHead head = start_answer(status, length);
  head.content_type = content_type;
  return head.text(headers);
}

Task<void> Connection::send(unsigned status, std::string_view content_type, std::string_view body,
                            const Headers& headers) {
  const std::string head = head_of(status, content_type, body.size(), headers);
  if (head_only_) body = {};
  end_.bytes_out = body.size();
  const std::array<asio::const_buffer, 2> parts = {asio::buffer(head), asio::buffer(body)};
  co_await write_raw(parts);
  finished_ = true;
}

Task<void> Connection::begin(unsigned status, std::string_view content_type, std::optional<uint64_t> length,
                             const Headers& headers) {
  const std::string head = head_of(status, content_type, length, headers);
  left_to_write_ = length;
  if (head_only_) left_to_write_ = 0;
  co_await write_raw(asio::const_buffer(asio::buffer(head)));
}

Task<void> Connection::write(std::string_view bytes) {
  if (bytes.empty() || head_only_) co_return;
  end_.bytes_out += bytes.size();
  if (!chunked_) {
    if (left_to_write_) *left_to_write_ -= std::min<uint64_t>(bytes.size(), *left_to_write_);
    co_await write_raw(asio::const_buffer(asio::buffer(bytes)));
    co_return;
  }
  co_await write_raw(http::make_chunk(asio::const_buffer(asio::buffer(bytes))));
}

Task<size_t> Connection::copy_from_pipe(PipeEnd& pipe, size_t size) {
  std::string chunk(std::min(size, kCopyAtOnce), '\0');
  boost::system::error_code error;
  const size_t n =
      co_await pipe.async_read_some(asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
  if (error == asio::error::eof) co_return 0;
  if (error) throw ClientGone{};
  co_await write(std::string_view(chunk).substr(0, n));
  co_return n;
}

Task<size_t> Connection::write_from_pipe(PipeEnd& pipe, size_t size) {
  if (socket_.encrypted()) co_return co_await copy_from_pipe(pipe, size);
  boost::system::error_code error;
  // The kernel holds back what is announced to have more behind it; the last bytes have nothing.
  const unsigned more = left_to_write_.value_or(0) > size ? SPLICE_F_MORE : 0;
  for (;;) {
    const ssize_t n = ::splice(pipe.native_handle(), nullptr, socket_.native_handle(), nullptr, size,
                               SPLICE_F_MOVE | SPLICE_F_NONBLOCK | more);
    if (n >= 0) {
      if (left_to_write_) *left_to_write_ -= std::min<uint64_t>(static_cast<uint64_t>(n), *left_to_write_);
      end_.bytes_out += static_cast<uint64_t>(n);
      writing_.came(static_cast<uint64_t>(n));
      co_return static_cast<size_t>(n);
    }
    if (errno != EAGAIN && errno != EINTR) throw ClientGone{};
    if (!ready_for(pipe.native_handle(), POLLIN)) {
      co_await pipe.async_wait(PipeEnd::wait_read, asio::redirect_error(asio::use_awaitable, error));
    } else {
      deadline_ = writing_.wait_until(Clock::now());
      co_await socket_.async_wait(Socket::wait_write, asio::redirect_error(asio::use_awaitable, error));
      deadline_ = Clock::time_point::max();
      writing_.waited(Clock::now());
    }
    if (error) throw ClientGone{};
  }
}

Task<void> Connection::finish() {
  if (chunked_ && !head_only_) co_await write_raw(asio::const_buffer("0\r\n\r\n", 5));
  if (left_to_write_.value_or(0) > 0) throw ClientGone{};
  finished_ = true;
}

Task<void> Connection::begin_proxied(unsigned status, std::string_view reason, std::optional<uint64_t> length,
                                     bool bodiless, const Headers& headers) {
  AnswerHead head = start_answer(status, length);
  head.proxied = true;
  head.reason = reason;
  if (bodiless) chunked_ = head.chunked = false;
  left_to_write_ = bodiless ? std::optional<uint64_t>(0) : length;
  const std::string text = head.text(headers);
  co_await write_raw(asio::const_buffer(asio::buffer(text)));
}

Task<void> Connection::switch_protocols(const Headers& headers) {
  if (!body_is_read()) throw invalid_request("a request that switches protocols must have no body");
  AnswerHead head{.status = 101, .request_id = request_id, .proxied = true, .reason = "Switching Protocols"};
  head.switches = true;
  begun_ = finished_ = must_close_ = true;
  chunked_ = false;
  left_to_write_.reset();
  end_.status = 101;
  end_.answered = Clock::now();
  const std::string text = head.text(headers);
  co_await write_raw(asio::const_buffer(asio::buffer(text)));
}

Task<size_t> Connection::read_switched(char* data, size_t size) {
  size_t n = std::min(buffer_.size(), size);
  if (n > 0) {
    std::memcpy(data, buffer_.data().data(), n);
    buffer_.consume(n);
  } else {
    boost::system::error_code error;
    n = co_await socket_.async_read_some(asio::buffer(data, size),
                                         asio::redirect_error(asio::use_awaitable, error));
    if (error && error != asio::error::eof) throw ClientGone{};
  }
  end_.bytes_in += n;
  co_return n;
}

// RFC 8446, 6.1: a close_notify is the end of one direction alone.
Task<void> Connection::end_writing() {
  boost::system::error_code error;
  if (!socket_.encrypted()) {
    socket_.socket().shutdown(Socket::shutdown_send, error);
    co_return;
  }
  write_deadline_ = writing_.wait_until(Clock::now());
  co_await socket_.async_end_writing_tls(asio::redirect_error(asio::use_awaitable, error));
  write_deadline_ = Clock::time_point::max();
  if (error) throw ClientGone{};
}

void Connection::stop_reading() {
  must_close_ = true;
  boost::system::error_code ignored;
  socket_.socket().cancel(ignored);
}

Task<std::unique_ptr<WebSocket>> Connection::upgrade(size_t most_message) {
  if (!body_is_read() || buffer_.size() > 0)
    throw invalid_request(
        "a WebSocket request must have no body, and the client must send nothing before the response");
  auto made =
      co_await accept_websocket(socket_, parser_->get(), most_message, request_id, [this](bool begins) {
        deadline_ =
            begins ? Clock::now() + seconds(server_.limits_.write_timeout_sec) : Clock::time_point::max();
      });
  begun_ = finished_ = must_close_ = true;
  if (!made) throw ClientGone{};
  end_.status = 101;
  end_.answered = Clock::now();
  co_return made;
}

Task<void> Connection::answer_error(const ApiError& error) {
  Headers headers;
  if (error.retry_after_sec > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after_sec));
  if (!error.header.first.empty()) headers.push_back(error.header);
  if (error.code == Code::kUnauthenticated)
    headers.emplace_back("WWW-Authenticate", "Bearer realm=\"isogate\"");
  const auto [status, body] = server_.hooks_.refusal(*this, listener_, error);
  co_await send(status, "application/json", body, headers);
}

}  // namespace isogate::front
