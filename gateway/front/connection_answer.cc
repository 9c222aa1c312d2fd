#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <charconv>

#include "gateway/front/connection.h"
#include "gateway/front/http_text.h"

namespace isogate::front {
namespace asio = boost::asio;

namespace {
constexpr size_t kCopyAtOnce = 64 * 1024;
constexpr size_t kWriteAtOnce = 1 << 20;
}  // namespace

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
    deadline_ = writing_.wait_until(now);
    return failed ? 0 : kWriteAtOnce;
  };
  writing_.start(Clock::now());
  const size_t all =
      co_await asio::async_write(socket_, buffers, pace, asio::redirect_error(asio::use_awaitable, error));
  deadline_ = Clock::time_point::max();
  writing_.waited(Clock::now());
  writing_.came(all - written);
  if (error) {
    must_close_ = broken_ = true;
    throw ClientGone{};
  }
}

std::string Connection::head_of(unsigned status, std::string_view content_type,
                                std::optional<uint64_t> length, const Headers& headers) {
  end_.status = status;
  end_.answered = Clock::now();
  begun_ = true;
  const bool http10 = parser_->get().version() == 10;
  if (!body_is_read() || served_ >= server_.limits_.max_requests_per_connection) must_close_ = true;
  chunked_ = !length && !http10;
  if (!length && http10) must_close_ = true;
  const bool close = must_close_ || server_.draining_ || !parser_->get().keep_alive();
  if (close) must_close_ = true;
  AnswerHead head{.status = status,
                  .content_type = content_type,
                  .length = length,
                  .chunked = chunked_,
                  .close = close,
                  .keep_alive_10 = http10 && !close,
                  .request_id = request_id,
                  .cors_origin = cors_origin};
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
  std::array<char, 20> size{};
  const auto end = std::to_chars(size.data(), size.data() + 16, bytes.size(), 16).ptr;
  end[0] = '\r';
  end[1] = '\n';
  const std::array<asio::const_buffer, 3> parts = {
      asio::buffer(size.data(), static_cast<size_t>(end + 2 - size.data())), asio::buffer(bytes),
      asio::buffer("\r\n", 2)};
  co_await write_raw(parts);
}

Task<size_t> Connection::copy_from_pipe(PipeEnd& pipe, size_t size) {
  std::string chunk(std::min(size, kCopyAtOnce), '\0');
  boost::system::error_code error;
  const size_t n =
      co_await pipe.async_read_some(asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
  if (error == asio::error::eof) co_return 0;
  if (error) throw ClientGone{};
  if (left_to_write_) *left_to_write_ -= std::min<uint64_t>(n, *left_to_write_);
  end_.bytes_out += n;
  const asio::const_buffer part(chunk.data(), n);
  co_await write_raw(part);
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

Task<void> Connection::answer_error(const ApiError& error) {
  Headers headers;
  if (error.retry_after_sec > 0) headers.emplace_back("Retry-After", std::to_string(error.retry_after_sec));
  if (!error.allow.empty()) headers.emplace_back("Allow", error.allow);
  if (error.code == Code::kUnauthenticated)
    headers.emplace_back("WWW-Authenticate", "Bearer realm=\"isogate\"");
  co_await send(error.http_status(), "application/json", error.body(request_id), headers);
}
}  // namespace isogate::front
