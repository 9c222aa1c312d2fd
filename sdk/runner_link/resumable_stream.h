// The stream behind sdk::resumable_stream(). fd() and room_fd() stay the same over all streams below: an
// epoll set with the current one, and an eventfd that is full while no more bytes may be kept. So a
// caller that polls them does not notice the loss of a stream.
#pragma once

#include <chrono>
#include <mutex>
#include <thread>

#include "descriptor.h"
#include "exchange.h"
#include "isogate/runner_link.hpp"
#include "isogate/runner_resume.h"

namespace isogate::sdk::link {

// What is wrong with the reply to `request`; null: nothing. Pure.
const char* fault_of(const isogate_runner_resumed& answer, const isogate_runner_resume& request);

class ResumableStream final : public RunnerStream {
 public:
  ResumableStream(RunnerDial dial, const ResumeOptions& options, const Call& call);
  ~ResumableStream() override;

  [[nodiscard]] int fd() const override { return ready_.get(); }
  [[nodiscard]] int room_fd() const override { return room_.get(); }
  ssize_t read_some(char* to, size_t size) override;
  ssize_t write_some(const char* from, size_t size) override;
  [[nodiscard]] bool has_buffered() const override;
  void shutdown() override;
  [[nodiscard]] bool hung_up() const override;
  [[nodiscard]] bool is_away() const override;

 private:
  using Clock = std::chrono::steady_clock;

  // With mutex_ held.
  [[nodiscard]] size_t takes(size_t size) const;
  ssize_t receive(char* to, size_t size);
  void flush();
  void watch();
  void tell_room();
  void lose();
  void end();
  void adopt(std::unique_ptr<RunnerStream> stream);

  [[nodiscard]] isogate_runner_resume preamble() const;
  void redial(Clock::time_point until, int first_pause);
  bool dial_once(Clock::time_point until);  // false: again
  bool pause(int milliseconds) const;       // false: it is over

  const RunnerDial dial_;
  const ResumeOptions options_;
  const Descriptor ready_, room_, over_event_;

  mutable std::mutex mutex_;  // of all below; held over nothing that blocks
  std::unique_ptr<RunnerStream> stream_, lost_;
  Exchange exchange_;
  std::array<uint8_t, 16> session_{};
  Clock::time_point last_received_, adopted_;
  bool brought_ = false;      // the stream there is: bytes of the session
  int brief_ = 0, void_ = 0;  // streams in a row that did not last, and that brought nothing either
  bool watches_room_ = false, full_ = false, over_ = false;
  std::thread redial_;
};

}  // namespace isogate::sdk::link
