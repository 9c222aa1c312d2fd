// A WebSocket client for tests, blocking. Pings are answered while it reads. What fails or takes too long
// throws std::runtime_error. One thread.
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

  // `url` as of HttpConnection, over TCP. A refusal of the handshake is no failure: answer() is it. The
  // timeout is that of each wait.
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

  void close();  // says goodbye, and waits for the gateway to do so; what comes meanwhile is lost
  void drop();   // ends the connection without a word

 private:
  struct Stream;  // Beast's, which is large
  std::unique_ptr<Stream> stream_;
};

}  // namespace isogate::test
