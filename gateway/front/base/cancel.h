// The cancellation of one call to a backend. Firing it makes the call's cancel_fd readable; after
// kReleaseWithin the front stops waiting for the backend: its call then ends as lost. The front's one
// thread.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "gateway/front/base/alarm.h"
#include "lib/fd.h"

namespace isogate::front {

class Cancel {
 public:
  // A runner sends SIGKILL and waits up to 10 s for processes that the kernel delays.
  static constexpr std::chrono::seconds kReleaseWithin{15};

  static Result<std::shared_ptr<Cancel>> make(const boost::asio::any_io_executor& executor) {
    auto event = make_shared_event();
    if (!event) return event.error();
    return std::make_shared<Cancel>(executor, std::move(*event));
  }
  Cancel(const boost::asio::any_io_executor& executor, Fd event)
      : event_(std::move(event)), limit_(executor), patience_(executor) {}

  void fire() {
    if (std::exchange(fired_, true)) return;
    limit_.cancel();
    signal_event(event_.get());
    if (abandon_) patience_.set(kReleaseWithin, abandon_);
  }
  void fire_after(std::chrono::nanoseconds limit) {
    limit_.set(limit, [this] { fire(); });
  }
  [[nodiscard]] bool fired() const { return fired_; }

  // The channel's: from sending the call to its end.
  [[nodiscard]] int event() const { return event_.get(); }
  void begin(std::function<void()> abandon) {
    abandon_ = std::move(abandon);
    if (fired_) patience_.set(kReleaseWithin, abandon_);
  }
  void end() {
    limit_.cancel();
    patience_.cancel();
    abandon_ = {};
  }

 private:
  Fd event_;
  Alarm limit_, patience_;
  std::function<void()> abandon_;
  bool fired_ = false;
};

}  // namespace isogate::front
