// A circuit breaker, one per backend and tenant: after a few infrastructure failures in a row (backend
// unavailable, contact lost, channel broken; never a program that fails) sandboxes are no longer opened, and
// after a delay one open is let through as a trial. Open sandboxes are still served. Failures of one sandbox
// count once, because its own programs may have caused them. Time is passed in. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <set>
#include <string>

namespace isogate::front {

class Breaker {
 public:
  using Time = std::chrono::steady_clock::time_point;
  enum class State { kClosed, kOpen, kHalfOpen };

  // True while a call must not be made: open, or half-open with its trial still out (a trial that
  // has not ended after a minute no longer counts).
  [[nodiscard]] bool blocked(Time now) const;

  void started(Time now);  // a call is being made; in the half-open state it is the trial
  void failed(Time now, const std::string& sandbox_id, std::string reason);
  void ended() { trial_ = false; }  // that call has ended, also in a way that shows neither

  [[nodiscard]] State state(Time now) const;
  // For a person: what failed, how often, and when the next trial is. Empty while closed.
  [[nodiscard]] std::string reason(Time now) const;
  [[nodiscard]] const std::string& last_failure() const { return why_; }

 private:
  static constexpr uint32_t kFailures = 3;          // sandboxes that failed in a row, to open
  static constexpr std::chrono::seconds kDelay{5};  // until the first trial; doubles with each that fails
  static constexpr std::chrono::seconds kMaxDelay{60};

  std::set<std::string> failed_;  // sandboxes, in a row; no more than it takes to open
  uint32_t failures_ = 0;         // in a row
  bool open_ = false;
  bool trial_ = false;
  Time trial_since_{}, until_{};
  std::chrono::seconds delay_{0};
  std::string why_;
};

// One for each tenant, so that no tenant closes a backend to others.
class Breakers {
 public:
  using Time = Breaker::Time;
  // Valid until the next change; one that is closed while that tenant has no failure.
  [[nodiscard]] const Breaker& of(const std::string& tenant) const;
  void started(const std::string& tenant, Time now);
  void succeeded(const std::string& tenant) { of_.erase(tenant); }  // a call ended well
  void ended(const std::string& tenant);
  void recovered() { of_.clear(); }  // a probe was good, or its settings are others
  // True when this opened it.
  bool failed(const std::string& tenant, const std::string& sandbox_id, Time now, std::string reason);

 private:
  std::map<std::string, Breaker> of_;  // those that have failed
};

}  // namespace isogate::front
