// A blocking WebSocket client for tests. It answers pings while it reads. Failures and timeouts throw
// std::runtime_error. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tests/support/http.h"

namespace isogate::test {

class WebSocket {
 public:
  struct Message {
    bool text = false;  // else binary
    std::string bytes;
  };

  // `url` as for HttpConnection, over TCP. A refused handshake does not throw: see answer(). The timeout
  // applies to each wait.
  WebSocket(const std::string& url, const std::string& target, const Headers& headers,
            double timeout_sec = 120);
  WebSocket(const WebSocket&) = delete;
  WebSocket& operator=(const WebSocket&) = delete;
  ~WebSocket();  // drop()

  [[nodiscard]] const HttpResponse& answer() const;  // to the handshake: 101, or a refusal with its body
  [[nodiscard]] bool open() const { return answer().status == 101; }

  void send_text(const std::string& text);
  void send_binary(const std::string& bytes);
  std::optional<Message> next();              // nullopt: the gateway has closed it, or close() is done
  [[nodiscard]] uint16_t close_code() const;  // of the gateway's close frame, after next() was nullopt

  void close();  // sends a close frame and waits for the gateway's; messages meanwhile are lost
  void drop();   // ends the connection without a close frame

 private:
  struct Stream;  // Beast's stream, which is large
  std::unique_ptr<Stream> stream_;
};

}  // namespace isogate::test
