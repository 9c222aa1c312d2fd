// One call of a client: a stream of the protocol, from its request to its RESULT.
//
// The thread that reads the connection makes and opens it, so that it is ready for the frames that follow.
// Then the call's own thread runs it, while another thread reads.
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "runner/agent/calls/flow.h"
#include "runner/agent/place.h"
#include "sdk/runner_link/requests.h"

namespace isogate::agent {

using Clock = std::chrono::steady_clock;

struct Answer {
  isogate_runner_result result{};
  std::string message;  // of a success: the bytes that come with it

  Answer() = default;
  explicit Answer(const Error& error);
  // The payload of RESULT.
  [[nodiscard]] std::string encoded() const;
};

class Call {
 public:
  Call(Place& place, Wire wire, uint32_t stream);
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] uint32_t stream() const { return stream_; }
  // Bytes of the request that are kept while it runs.
  [[nodiscard]] virtual size_t weight() const { return 0; }

  // How many descriptors the request must bring, if it brings any.
  [[nodiscard]] virtual size_t descriptors() const { return 0; }
  // The reading thread, first of all. `batch`: the descriptors that came with the request, or none.
  virtual Result<void> open(std::vector<Fd> batch) = 0;
  // The call's own thread. Runs it to its end: all descriptors are closed, and no process of a
  // program is left.
  virtual Answer run() = 0;

  // The frames of a stream. False: against the protocol.
  virtual bool data(uint32_t channel, std::string_view bytes);
  virtual bool end(uint32_t channel);
  virtual bool credit(uint32_t, uint32_t) { return false; }
  virtual bool control(const isogate_control&) { return false; }
  // Any thread. `at_once`: no reader is left for further output.
  virtual void cancel(bool at_once);

  virtual void pump(uint32_t channel, std::span<char> buffer);  // main thread

  // How long ago it was cancelled; zero: it was not. Any thread.
  [[nodiscard]] Clock::duration overdue() const;

 protected:
  // Called first. ISOGATE_RESOURCE_EXHAUSTED when few descriptors are left: those are reserved for ending
  // running programs.
  Result<void> make_cancel();
  [[nodiscard]] int cancel_fd() const { return cancel_.get(); }
  // Ends waits for credit soon, or at once.
  static void give_up(Credit& credit, bool at_once);

  Place& place_;
  Wire wire_;
  const uint32_t stream_;
  Inlet inlet_;

 private:
  Fd cancel_;
  std::atomic<Clock::rep> cancelled_at_{0};
};

// Null: the payload breaks the protocol's layout.
std::unique_ptr<Call> make_exec(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_file(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_measure(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_connect(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_prove(Place& place, Wire wire, const link::Frame& frame);

}  // namespace isogate::agent
