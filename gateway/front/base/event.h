// Something that happens once, awaited by any number of coroutines of the front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

#include "gateway/front/base/alarm.h"

namespace isogate::front {

class Event {
 public:
  explicit Event(const boost::asio::any_io_executor& executor)
      : timer_(executor, std::chrono::steady_clock::time_point::max()) {}

  void set() {
    set_ = true;
    timer_.cancel();
  }
  [[nodiscard]] bool is_set() const { return set_; }

  boost::asio::awaitable<void> wait() {
    boost::system::error_code ignored;
    while (!set_)
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }

  // False when `limit` passed first.
  boost::asio::awaitable<bool> wait_for(std::chrono::nanoseconds limit) {
    if (set_) co_return true;
    bool late = false;
    Alarm alarm(timer_.get_executor());
    alarm.set(limit, [this, &late] {
      late = true;
      timer_.cancel();
    });
    boost::system::error_code ignored;
    while (!set_ && !late) {
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    }
    co_return set_;
  }

 private:
  boost::asio::steady_timer timer_;
  bool set_ = false;
};

}  // namespace isogate::front
