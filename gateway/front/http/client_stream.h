// The bytes between a client and its connection: a socket, with or without TLS. For Asio it is an
// AsyncReadStream and AsyncWriteStream. Cancelling an operation leaves the other direction usable.
// Included by connection.h alone (Asio's SSL headers).
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <optional>
#include <string>
#include <vector>

#include "gateway/base/tls_context.h"

namespace isogate::front {

class ClientStream {
 public:
  using Socket = boost::asio::generic::stream_protocol::socket;
  using executor_type = Socket::executor_type;

  // Without a context the bytes are plain.
  ClientStream(Socket socket, const TlsContext& context);
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;

  [[nodiscard]] bool encrypted() const { return tls_.has_value(); }
  [[nodiscard]] Socket& socket() { return socket_; }
  [[nodiscard]] executor_type get_executor() { return socket_.get_executor(); }
  [[nodiscard]] int native_handle() { return socket_.native_handle(); }

  // Only when encrypted(): the server's side of the handshake; a close_notify that waits for none, after
  // which nothing is read; and one after which reads go on, until the client's comes.
  template <typename Token>
  auto async_handshake(Token&& token) {
    return tls_->async_handshake(boost::asio::ssl::stream_base::server, std::forward<Token>(token));
  }
  template <typename Token>
  auto async_close_tls(Token&& token) {
    set_client_closed(true);
    return tls_->async_shutdown(std::forward<Token>(token));
  }
  template <typename Token>
  auto async_end_writing_tls(Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code)>(
        [this](auto handler) {
          set_client_closed(true);  // looked at when the shutdown is initiated
          tls_->async_shutdown(std::move(handler));
          set_client_closed(false);
        },
        token);
  }

  template <typename Buffers, typename Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return socket_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <typename Buffers, typename Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return socket_.async_write_some(buffers, std::forward<Token>(token));
  }
  // Of the socket: TLS's own records also make it ready.
  template <typename Token>
  auto async_wait(Socket::wait_type what, Token&& token) {
    return socket_.async_wait(what, std::forward<Token>(token));
  }

  // The subject alternative names of a verified client certificate, as `tls.clients` spells them
  // ("DNS:agent.example.org"); names with control characters are left out. Empty: there is none.
  [[nodiscard]] std::vector<std::string> verified_names();

 private:
  void set_client_closed(bool closed);

  Socket socket_;
  std::optional<boost::asio::ssl::stream<Socket&>> tls_;
};

}  // namespace isogate::front
