// The connection of a session that outlives its streams (isogate/runner_resume.h). With a stream it reads and
// writes that; without one it keeps bytes to send, up to a bound, and the session continues.
//
// No writer blocks on a stream: the reading thread sends bytes that a stream does not accept at once. A
// sender that would exceed the bound waits for the client's acknowledgement.
#pragma once

#include <chrono>
#include <condition_variable>

#include "runner/agent/link/connection.h"
#include "sdk/runner_link/exchange.h"

namespace isogate::agent {

// The stream of an `attach`: non-blocking. Its socket ends with the `attach`.
struct Stream {
  Fd in, out, socket;
};

class ResumableConnection final : public Connection {
 public:
  // `grace`: how long it stays without a stream.
  static Result<std::unique_ptr<ResumableConnection>> make(const isogate_runner_resumed& first,
                                                           std::chrono::seconds grace);

  // Main thread. The session continues on this stream, in place of the present one, after the `received`
  // bytes that the client has. False: it cannot.
  bool attach(Stream stream, uint64_t received);

  size_t read(std::span<char> room) override;
  bool send(uint16_t type, uint32_t stream, std::string_view body, std::string_view bytes) override;
  void stop() override;
  [[nodiscard]] bool stopped() const override { return over_; }

 private:
  using Clock = std::chrono::steady_clock;
  ResumableConnection() = default;

  // With mutex_ held.
  size_t receive(std::span<char> room);
  void flush();
  void lose();
  void end();

  bool wait();  // false: over

  isogate_runner_resumed answer_{};
  std::chrono::seconds grace_{};
  Fd wake_;  // an eventfd: the reading thread must check again

  std::mutex mutex_;  // of all below; held over nothing that blocks
  std::condition_variable changed_;
  sdk::link::Exchange exchange_;
  Stream stream_;
  uint64_t streams_ = 0;  // how many there were
  Clock::time_point lost_at_ = Clock::now();
  std::atomic<bool> over_{false};
};

}  // namespace isogate::agent
