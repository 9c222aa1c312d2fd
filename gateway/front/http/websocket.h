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
  // The next message; nullopt once the client has closed it, has broken its rules or is gone.
  virtual boost::asio::awaitable<std::optional<Message>> read() = 0;
  // Returns when the kernel has taken the bytes. Throws ClientGone, also when the client takes too little of
  // them for too long.
  virtual boost::asio::awaitable<void> write(bool text, std::string_view bytes) = 0;
  // Says goodbye, and waits two seconds for the client's; whoever waits in read() gets nullopt. Throws
  // nothing.
  virtual boost::asio::awaitable<void> close(uint16_t code, std::string_view reason) = 0;
  // At once, without a word.
  virtual void abort() = 0;
};

}  // namespace isogate::front
