#include "tests/support/websocket.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/buffers_to_string.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/string_body.hpp>
#include <boost/beast/websocket.hpp>
#include <chrono>
#include <stdexcept>

namespace isogate::test {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
namespace {

using ErrorCode = boost::system::error_code;

[[noreturn]] void fail(const std::string& what, const ErrorCode& error) {
  throw std::runtime_error("websocket: cannot " + what + ": " + error.message());
}

asio::ip::tcp::endpoint endpoint_of(const std::string& url) {
  const std::string scheme = "http://";
  const size_t colon = url.rfind(':');
  if (url.rfind(scheme, 0) != 0 || colon <= scheme.size())
    throw std::runtime_error("websocket: not a url this client knows: " + url);
  return {asio::ip::make_address(url.substr(scheme.size(), colon - scheme.size())),
          static_cast<asio::ip::port_type>(std::stoul(url.substr(colon + 1)))};
}

}  // namespace

struct WebSocket::Stream {
  asio::io_context context;
  websocket::stream<beast::tcp_stream> socket{context};
  std::chrono::duration<double> timeout{};
  HttpResponse answer;

  // Runs one operation to its end, or to the timeout, after which the connection is closed.
  template <typename Start>
  ErrorCode run(Start start) {
    ErrorCode result = asio::error::operation_aborted;
    beast::get_lowest_layer(socket).expires_after(
        std::chrono::duration_cast<std::chrono::milliseconds>(timeout));
    start([&result](const ErrorCode& error, auto&&...) { result = error; });
    context.restart();
    context.run();
    return result;
  }

  void send(bool text, const std::string& bytes) {
    socket.text(text);
    const ErrorCode error = run([&](auto done) { socket.async_write(asio::buffer(bytes), done); });
    if (error) fail("send", error);
  }
};

WebSocket::WebSocket(const std::string& url, const std::string& target, const Headers& headers,
                     double timeout_sec)
    : stream_(std::make_unique<Stream>()) {
  Stream& all = *stream_;
  all.timeout = std::chrono::duration<double>(timeout_sec);
  const auto endpoint = endpoint_of(url);
  ErrorCode error =
      all.run([&](auto done) { beast::get_lowest_layer(all.socket).async_connect(endpoint, done); });
  if (error) fail("connect to " + url, error);
  all.socket.set_option(websocket::stream_base::decorator([&headers](websocket::request_type& request) {
    for (const auto& [name, value] : headers) request.set(name, value);
  }));
  websocket::response_type response;
  const std::string host = url.substr(url.find("//") + 2);
  error = all.run([&](auto done) { all.socket.async_handshake(response, host, target, done); });
  if (error && error != websocket::error::upgrade_declined) fail("shake hands", error);
  all.answer.status = response.result_int();
  for (const auto& field : response)
    all.answer.headers.emplace_back(std::string(field.name_string()), std::string(field.value()));
  all.answer.body = response.body();
}

WebSocket::~WebSocket() { drop(); }

const HttpResponse& WebSocket::answer() const { return stream_->answer; }

void WebSocket::send_text(const std::string& text) { stream_->send(true, text); }

void WebSocket::send_binary(const std::string& bytes) { stream_->send(false, bytes); }

std::optional<WebSocket::Message> WebSocket::next() {
  beast::flat_buffer buffer;
  const ErrorCode error = stream_->run([&](auto done) { stream_->socket.async_read(buffer, done); });
  // A peer that sent its close frame may be gone before this side's is sent.
  if (error == websocket::error::closed || (error && stream_->socket.reason())) return std::nullopt;
  if (error) fail("receive", error);
  return Message{stream_->socket.got_text(), beast::buffers_to_string(buffer.data())};
}

uint16_t WebSocket::close_code() const { return stream_->socket.reason().code; }

void WebSocket::close() {
  const ErrorCode error =
      stream_->run([&](auto done) { stream_->socket.async_close(websocket::close_code::normal, done); });
  if (error) fail("close", error);
}

void WebSocket::drop() { beast::get_lowest_layer(stream_->socket).close(); }

}  // namespace isogate::test
