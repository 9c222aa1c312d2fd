// A circuit breaker, one per backend: after a few infrastructure failures in a row (backend
// unavailable, contact lost, channel broken; never a program that fails) calls are refused at once,
// and after a delay one is let through to try. Time is passed in. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace isogate::front {

class Breaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Options {
    uint32_t failures = 3;                  // in a row, to open
    std::chrono::milliseconds delay{5000};  // until the first trial; doubles with each that fails
    std::chrono::milliseconds max_delay{60000};
  };
  enum class State { kClosed, kOpen, kHalfOpen };

  Breaker() = default;
  explicit Breaker(Options options) : options_(options) {}

  // True while a call must not be made: open, or half-open with its trial still out (a trial that
  // has not ended after max_delay no longer counts).
  [[nodiscard]] bool blocked(Time now) const;

  void started(Time now);  // a call is being made; in the half-open state it is the trial
  void succeeded();        // a call ended well, or a probe was good: closed, delay reset
  void failed(Time now, std::string reason);
  void abandoned();  // the call ended for the caller's own reasons and proves nothing

  [[nodiscard]] State state(Time now) const;
  // For a person: what failed, how often, and when the next trial is. Empty while closed.
  [[nodiscard]] std::string reason(Time now) const;

 private:
  Options options_;
  uint32_t failures_ = 0;  // in a row
  bool open_ = false;
  bool trial_ = false;
  Time trial_since_{}, until_{};
  std::chrono::milliseconds delay_{0};
  std::string why_;
};

}  // namespace isogate::front
