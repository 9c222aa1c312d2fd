// One call of a client: a stream of the protocol, from its request to its RESULT.
//
// The thread that reads the connection makes and opens it, so that it is ready for the frames that follow.
// Then the call's own thread runs it, while another thread reads.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
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
  // What `work` answers, or the error that its exception stands for.
  static Answer of(const std::function<Answer()>& work);
  // The payload of RESULT.
  [[nodiscard]] std::string encoded() const;
};

// No thread could be started for a call.
Error no_thread();

class Call {
 public:
  Call(Place& place, Wire wire, const link::Frame& frame);
  virtual ~Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] uint32_t stream() const { return stream_; }
  // Bytes of the request that are kept while it runs.
  [[nodiscard]] size_t weight() const { return weight_; }

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
  virtual bool credit(uint32_t channel, uint32_t bytes);
  virtual bool control(const isogate_control&) { return false; }
  // Any thread. `at_once`: no reader is left for further output.
  virtual void cancel(bool at_once);

  virtual void pump(uint32_t channel, std::span<char> buffer);  // main thread

  // How long ago it was cancelled; zero: it was not. Any thread.
  [[nodiscard]] Clock::duration overdue() const;

 protected:
  // For a slow reader, once the call is cancelled.
  static constexpr std::chrono::milliseconds kDeliverPatience{5000};

  // Called first. ISOGATE_RESOURCE_EXHAUSTED when few descriptors are left: those are reserved for ending
  // running programs.
  Result<void> make_cancel();
  [[nodiscard]] int cancel_fd() const { return cancel_.get(); }
  // Ends waits for credit soon, or at once.
  static void give_up(Credit& credit, bool at_once);

  Place& place_;
  Wire wire_;
  const uint32_t stream_;
  const bool given_;  // its bytes go through descriptors of the client, not in frames
  Inlet inlet_;
  Outlet outlet_;  // of STDOUT

 private:
  const size_t weight_;
  Fd cancel_;
  std::atomic<Clock::rep> cancelled_at_{0};
};

// Null: the payload breaks the protocol's layout.
std::unique_ptr<Call> make_exec(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_file(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_measure(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_connect(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_prove(Place& place, Wire wire, const link::Frame& frame);
std::unique_ptr<Call> make_rejoin(Place& place, Wire wire, const link::Frame& frame);
// An EXEC that outlives its session. Null: the frame has descriptors, which such a program cannot have.
std::unique_ptr<Call> make_kept_exec(Place& place, Wire wire, const link::Frame& frame,
                                     link::ExecOrder order);

}  // namespace isogate::agent
