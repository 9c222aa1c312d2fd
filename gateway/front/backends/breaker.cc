#include "gateway/front/backends/breaker.h"

#include <algorithm>

namespace isogate::front {

Breaker::State Breaker::state(Time now) const {
  if (!open_) return State::kClosed;
  return now < until_ ? State::kOpen : State::kHalfOpen;
}

bool Breaker::blocked(Time now) const {
  switch (state(now)) {
    case State::kClosed:
      return false;
    case State::kOpen:
      return true;
    case State::kHalfOpen:
      break;
  }
  return trial_ && now < trial_since_ + kMaxDelay;
}

void Breaker::started(Time now) {
  if (state(now) != State::kHalfOpen) return;
  trial_ = true;
  trial_since_ = now;
}

void Breaker::failed(Time now, const std::string& sandbox_id, std::string reason) {
  State before = state(now);
  if (before == State::kOpen) return;  // a call from before it opened
  ++failures_;
  why_ = std::move(reason);
  if (before == State::kClosed) failed_.insert(sandbox_id);
  if (before == State::kClosed && failed_.size() < kFailures) return;
  delay_ = before == State::kClosed ? kDelay : std::min(delay_ * 2, kMaxDelay);
  open_ = true;
  trial_ = false;
  until_ = now + delay_;
}

std::string Breaker::reason(Time now) const {
  if (!open_) return {};
  std::string text = std::to_string(failures_) + " failures in a row, the last: " + why_ + "; ";
  if (state(now) == State::kOpen) {
    auto left = std::chrono::ceil<std::chrono::seconds>(until_ - now).count();
    return text + "tried again in " + std::to_string(left) + " s";
  }
  return text + (blocked(now) ? "being tried again now" : "the next call tries it again");
}

const Breaker& Breakers::of(const std::string& tenant) const {
  static const Breaker closed;
  const auto found = of_.find(tenant);
  return found == of_.end() ? closed : found->second;
}

void Breakers::started(const std::string& tenant, Time now) {
  if (const auto found = of_.find(tenant); found != of_.end()) found->second.started(now);
}

void Breakers::ended(const std::string& tenant) {
  if (const auto found = of_.find(tenant); found != of_.end()) found->second.ended();
}

bool Breakers::failed(const std::string& tenant, const std::string& sandbox_id, Time now,
                      std::string reason) {
  Breaker& breaker = of_[tenant];
  const bool was_open = breaker.state(now) != Breaker::State::kClosed;
  breaker.failed(now, sandbox_id, std::move(reason));
  return !was_open && breaker.state(now) != Breaker::State::kClosed;
}

}  // namespace isogate::front
