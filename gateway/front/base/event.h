// Something that happens once, awaited by any number of coroutines of the front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>

#include "gateway/front/base/changes.h"
#include "gateway/front/base/killer.h"

namespace isogate::front {

class Event {
 public:
  explicit Event(const boost::asio::any_io_executor& executor) : changes_(executor) {}

  void set() {
    set_ = true;
    changes_.notify();
  }
  [[nodiscard]] bool is_set() const { return set_; }

  boost::asio::awaitable<bool> wait() { return wait_for(std::chrono::nanoseconds::max()); }
  // False when `limit` passed first.
  boost::asio::awaitable<bool> wait_for(std::chrono::nanoseconds limit) {
    return changes_.until([this] { return set_; }, limit);
  }
  // Likewise; or when `killer` killed.
  boost::asio::awaitable<bool> wait_for(std::chrono::nanoseconds limit, Killer& killer) {
    const OnKill on_kill(killer, [this] { changes_.notify(); });
    co_await changes_.until([this, &killer] { return set_ || killer.killed(); }, limit);
    co_return set_;
  }

 private:
  Changes changes_;
  bool set_ = false;
};

}  // namespace isogate::front
