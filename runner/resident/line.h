// The connection of a session that outlives its streams (isogate/runner_resume.h): while one is there it is
// read and written, while none is there what is said is kept, up to a bound, and the session goes on.
//
// Nobody waits in a write: what a stream does not take at once is sent by the thread that reads, which never
// waits for anything else. Who has more to say than may be kept waits for the client's acknowledgement.
#pragma once

#include <chrono>
#include <condition_variable>

#include "runner/resident/connection.h"
#include "sdk/runner_link/exchange.h"

namespace isogate::resident {

// What an `attach` has brought: non-blocking. Its socket ends when it does.
struct Stream {
  Fd in, out, socket;
};

class Line final : public Connection {
 public:
  // `grace`: how long it stays without a stream.
  static Result<std::unique_ptr<Line>> make(const isogate_runner_resumed& first, std::chrono::seconds grace);

  // The main thread's: the session goes on over this stream, in the place of the one there is, from where the
  // client says it is. False: it cannot.
  bool attach(Stream stream, uint64_t received);

  size_t read(std::span<char> room) override;
  bool send(uint16_t type, uint32_t stream, std::string_view body, std::string_view bytes) override;
  void stop() override;
  [[nodiscard]] bool stopped() const override { return over_; }

 private:
  using Clock = std::chrono::steady_clock;
  Line() = default;

  // With mutex_ held.
  size_t receive(std::span<char> room);
  void flush();
  void lose();
  void end();

  bool wait();  // false: over

  isogate_runner_resumed answer_{};
  std::chrono::seconds grace_{};
  Fd wake_;  // an eventfd: the reading thread has to look again

  std::mutex mutex_;  // of all below; held over nothing that blocks
  std::condition_variable changed_;
  sdk::link::Exchange exchange_;
  Stream stream_;
  uint64_t streams_ = 0;  // so many were there
  Clock::time_point lost_at_ = Clock::now();
  std::atomic<bool> over_{false};
};

}  // namespace isogate::resident
