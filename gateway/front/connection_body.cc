#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>

#include "gateway/front/connection.h"
#include "gateway/front/http_text.h"

namespace isogate::front {
namespace asio = boost::asio;

namespace {
constexpr size_t kBodyChunk = 256 * 1024;
constexpr size_t kSpliceAtOnce = 1 << 20;
}  // namespace

Task<void> Connection::continue_if_expected() {
  const bool http10 = parser_->get().version() == 10;  // RFC 9110, 10.1.1: it is not told
  if (continue_sent_ || http10 || header("Expect").empty() || buffer_.size() > 0) co_return;
  continue_sent_ = true;
  static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
  co_await write_raw(asio::const_buffer(asio::buffer(kContinue)));
}

// At least one byte of the body, or 0 at its complete end.
Task<size_t> Connection::read_body_some(char* data, size_t size) {
  co_await continue_if_expected();
  while (!body_is_read()) {
    if (const size_t n = take_body(data, size); n > 0) co_return n;
    if (!body_is_read()) co_await more_body();
  }
  co_return 0;
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
      throw ApiError{.code = Code::kInvalidRequest,
                     .message = "the request's body is not well-formed: " + std::string(chunks_->problem())};
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

Task<void> Connection::more_body() {
  const size_t before = buffer_.size();
  deadline_ = reading_.wait_until(Clock::now());
  const bool more = co_await receive();
  deadline_ = Clock::time_point::max();
  reading_.waited(Clock::now());
  reading_.came(buffer_.size() - before);
  if (!more) body_was_cut();
}

Task<std::string> Connection::read_body(uint64_t cap) {
  const auto length = content_length();
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
}  // namespace isogate::front
