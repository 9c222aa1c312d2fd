// Something that changes repeatedly, awaited by any number of coroutines of the front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>

#include "gateway/front/base/alarm.h"

namespace isogate::front {

class Changes {
 public:
  explicit Changes(const boost::asio::any_io_executor& executor)
      : timer_(executor, std::chrono::steady_clock::time_point::max()) {}

  // Wakes every waiting coroutine, which checks again.
  void notify() { timer_.cancel(); }

  // Waits until `there()` is true; checks it first and after each change.
  template <typename There>
  boost::asio::awaitable<void> until(There there) {
    boost::system::error_code ignored;
    while (!there())
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
  }

  // False when `limit` passed first.
  template <typename There>
  boost::asio::awaitable<bool> until(There there, std::chrono::nanoseconds limit) {
    if (there()) co_return true;
    bool late = false;
    Alarm alarm(timer_.get_executor());
    alarm.set(limit, [this, &late] {
      late = true;
      timer_.cancel();
    });
    boost::system::error_code ignored;
    while (!there()) {
      if (late) co_return false;
      co_await timer_.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
    }
    co_return true;
  }

 private:
  boost::asio::steady_timer timer_;
};

}  // namespace isogate::front
