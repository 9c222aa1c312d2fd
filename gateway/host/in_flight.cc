#include "gateway/host/in_flight.h"

#include "gateway/host/abi_call.h"
#include "lib/fd.h"

namespace isogate {

InFlight::Call::Call(InFlight& owner, int cancel_fd) : owner_(owner), cancel_fd_(cancel_fd) {
  std::lock_guard lock(owner_.mutex_);
  admitted_ = !owner_.closed_;
  next_ = owner_.first_;
  if (next_ != nullptr) next_->previous_ = this;
  owner_.first_ = this;
}

InFlight::Call::~Call() {
  std::lock_guard lock(owner_.mutex_);
  (previous_ != nullptr ? previous_->next_ : owner_.first_) = next_;
  if (next_ != nullptr) next_->previous_ = previous_;
}

void InFlight::cancel_all() {
  std::lock_guard lock(mutex_);
  closed_ = true;
  for (Call* call = first_; call != nullptr; call = call->next_)
    // One that has fired may be full, and a write to it would block.
    if (!is_signalled(call->cancel_fd_)) signal_event(call->cancel_fd_);
}

}  // namespace isogate
