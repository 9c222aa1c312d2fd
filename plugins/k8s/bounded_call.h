// A call that is cancelled when the call it is part of is, or when a time of its own is over. Its own
// thread's.
#pragma once

#include <chrono>

#include "isogate/backend.hpp"
#include "runner/fd.h"

namespace isogate::k8s {

class BoundedCall {
 public:
  // `whole` is borrowed.
  BoundedCall(const sdk::Call& whole, std::chrono::milliseconds most);
  BoundedCall(const BoundedCall&) = delete;
  BoundedCall& operator=(const BoundedCall&) = delete;

  [[nodiscard]] const sdk::Call& call() const { return call_; }
  // It was this time that ended it.
  [[nodiscard]] bool is_late() const;

 private:
  const sdk::Call& whole_;
  const Fd timer_, either_;  // `either_` is readable when one of both is
  const isogate_call abi_;
  const sdk::Call call_;
};

}  // namespace isogate::k8s
