// A connection to a port of a sandbox: the backend connects, and its bytes pass through a socket whose other
// end the backend has. No HTTP here. The front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/base/killer.h"
#include "gateway/front/sandboxes/sandboxes.h"
#include "gateway/ipc/messages.h"

namespace isogate::front {

// For what a client has sent before it left: then its connection is cut.
inline constexpr std::chrono::seconds kPortPassWithin{5};

struct PortTarget {
  std::string tenant, agent, request_id;
  uint16_t port = 0;
  bool lasting = true;  // it may last without end: cut when the gateway drains, or replaces its backend
  std::chrono::milliseconds patience{30'000};  // of a replaced backend with one that is not lasting
};

// Thrown by waits on a connection that broke off, or was cut.
struct PortBroken {
  std::string why;
  bool cut = false;  // by this gateway: the sandbox ends, or its backend is replaced, or all ends
};

class PortConnection {
 public:
  // Connects. Throws ApiError: sandbox_not_found (none is created), unsupported, port_closed, rate_limited,
  // and what a call throws. `killer` cancels it: ClientGone.
  static boost::asio::awaitable<std::unique_ptr<PortConnection>> open(Sandboxes& sandboxes,
                                                                      Backends& backends, PortTarget target,
                                                                      size_t most_of_sandbox, Killer& killer);
  ~PortConnection();  // cut, unless it has ended
  PortConnection(const PortConnection&) = delete;
  PortConnection& operator=(const PortConnection&) = delete;

  // Waits for bytes of the port; 0: their end. Throws PortBroken.
  boost::asio::awaitable<size_t> read_some(char* to, size_t size);
  // Returns when all of it is on its way. False: the port accepts nothing more. Throws PortBroken.
  boost::asio::awaitable<bool> write(std::string_view bytes);
  void end_writing();
  void make_lasting();

  // Closes it at once; waits on it throw PortBroken.
  void cut(std::string why);
  // Called when it is cut, so that waits on the client can end, too.
  void on_cut(std::function<void()> act);
  // Waits until the backend is done with it. Throws PortBroken.
  boost::asio::awaitable<void> ended();
  [[nodiscard]] const std::string& backend() const;
  [[nodiscard]] uint64_t sent() const { return sent_; }          // bytes to the port
  [[nodiscard]] uint64_t received() const { return received_; }  // bytes of it

 private:
  struct Shared;
  explicit PortConnection(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::shared_ptr<Shared> shared_;
  uint64_t sent_ = 0, received_ = 0;
};

}  // namespace isogate::front
