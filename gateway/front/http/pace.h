// How long the front waits for a peer to send or accept bytes: never longer than `idle` at once, and in
// total no longer than `idle` plus the time of its bytes at the minimum rate. Only time spent waiting for
// the peer counts. Not thread-safe.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace isogate::front {

class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  Pace() = default;
  // A rate of 0 asks for none.
  Pace(std::chrono::seconds idle, uint32_t bytes_per_sec) : idle_(idle), rate_(bytes_per_sec) {}

  void start(Clock::time_point now) { began_ = now; }
  // The deadline of the wait that begins now.
  [[nodiscard]] Clock::time_point wait_until(Clock::time_point now) {
    began_ = now;
    if (rate_ == 0) return now + idle_;
    const std::chrono::duration<double> worth(std::min(static_cast<double>(bytes_) / rate_, kAges));
    const auto credit = idle_ + std::chrono::duration_cast<Clock::duration>(worth) - waited_;
    return now + std::clamp<Clock::duration>(credit, Clock::duration::zero(), idle_);
  }
  void waited(Clock::time_point now) { waited_ += now - began_; }
  void came(uint64_t bytes) { bytes_ += bytes; }

 private:
  static constexpr double kAges = 1e8;  // seconds

  Clock::duration idle_{};
  uint32_t rate_ = 0;
  uint64_t bytes_ = 0;
  Clock::duration waited_{};
  Clock::time_point began_{};
};

}  // namespace isogate::front
