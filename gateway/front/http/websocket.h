// A WebSocket of a client (RFC 6455), once its handshake is done. The front's one thread; one coroutine may
// read() while another one writes.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace isogate::front {

class WebSocket {
 public:
  static constexpr uint16_t kNormal = 1000, kGoingAway = 1001, kBadData = 1007, kPolicy = 1008,
                            kFailed = 1011;

  struct Message {
    bool text = false;  // else binary
    std::string bytes;
  };

  virtual ~WebSocket() = default;
  // The next message; nullopt once the client has closed it, has broken the protocol or has
  // disconnected.
  virtual boost::asio::awaitable<std::optional<Message>> read() = 0;
  // Returns when the kernel has taken the bytes. Throws ClientGone, also when the client reads too slowly
  // for too long.
  virtual boost::asio::awaitable<void> write(bool text, std::string_view bytes) = 0;
  // Sends a close frame with the beginning of the reason, and waits two seconds for the client's; a waiting
  // read() returns nullopt. Does not throw.
  virtual boost::asio::awaitable<void> close(uint16_t code, std::string_view reason) = 0;
  // Closes at once, without a close frame.
  virtual void abort() = 0;
};

}  // namespace isogate::front
