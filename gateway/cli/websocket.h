// A WebSocket (RFC 6455) to a gateway, over any endpoint. For a poll loop: only open() blocks. One
// thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

#include "gateway/cli/http_client.h"
#include "lib/net/transport.h"
#include "lib/net/websocket.h"

namespace isogate::cli {

class WebSocket {
 public:
  // Connects, and requests `target`; 60 s at most. A refusal is not an error. ISOGATE_CANCELLED: `cancel_fd`
  // became readable.
  using Opened = std::variant<std::unique_ptr<WebSocket>, HttpAnswer>;
  static Result<Opened> open(const HttpClient& client, const std::string& target, int cancel_fd);

  struct Handlers {
    std::function<void(std::string_view piece, bool begins)> binary;  // of a message, as its bytes come
    std::function<void(std::string_view whole)> text;
  };

  // Poll it for POLLIN, and for POLLOUT while unsent(). has_buffered(): receive() has bytes that poll(2) does
  // not see.
  [[nodiscard]] int fd() const { return transport_->fd(); }
  [[nodiscard]] bool has_buffered() const { return !early_.empty() || transport_->has_buffered(); }
  [[nodiscard]] size_t unsent() const { return out_.size(); }

  // Queue a message, or the end.
  void send_binary(std::string_view bytes) { send(net::Opcode::kBinary, bytes); }
  void send_text(std::string_view text) { send(net::Opcode::kText, text); }
  void send_close();

  // Sends what it can without blocking, and nothing more once the connection is broken, which
  // receive() reports.
  void flush();
  // Receives the available bytes, at most 64 KiB. ISOGATE_LOST: it has ended, with the gateway's reason if
  // there is one; the handlers got all earlier bytes.
  Result<void> receive(const Handlers& to);

 private:
  static constexpr size_t kPieceBytes = 65536, kTextMost = 1u << 20;

  WebSocket(std::unique_ptr<net::Transport> transport, std::string early)
      : transport_(std::move(transport)), early_(std::move(early)) {}
  void send(net::Opcode opcode, std::string_view payload);
  Result<void> take(std::string_view bytes, const Handlers& to);

  std::unique_ptr<net::Transport> transport_;
  std::string early_, out_, text_;
  bool broken_ = false;  // nothing more can be sent
  net::FrameReader reader_{true};
};

}  // namespace isogate::cli
