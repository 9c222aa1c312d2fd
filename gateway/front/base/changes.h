// Something that changes repeatedly, awaited by any number of coroutines of the front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/intrusive/list.hpp>
#include <chrono>

namespace isogate::front {

class Changes {
 public:
  explicit Changes(const boost::asio::any_io_executor& executor) : executor_(executor) {}

  // Wakes every waiting coroutine, which checks again.
  void notify() {
    for (Waiter& each : waiters_) each.timer.cancel();
  }

  // Waits until `there()` is true; checks it first and after each change. False when `limit` passed first,
  // which wakes nobody else.
  template <typename There>
  boost::asio::awaitable<bool> until(There there,
                                     std::chrono::nanoseconds limit = std::chrono::nanoseconds::max()) {
    if (there()) co_return true;
    Waiter waiter(executor_, limit);
    waiters_.push_back(waiter);
    boost::system::error_code changed;
    do {
      co_await waiter.timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, changed));
      if (there()) co_return true;
    } while (changed);
    co_return false;
  }

 private:
  // In the list while it lives.
  struct Waiter
      : boost::intrusive::list_base_hook<boost::intrusive::link_mode<boost::intrusive::auto_unlink>> {
    Waiter(const boost::asio::any_io_executor& executor, std::chrono::nanoseconds limit)
        : timer(executor, limit) {}
    boost::asio::steady_timer timer;
  };

  boost::asio::any_io_executor executor_;
  boost::intrusive::list<Waiter, boost::intrusive::constant_time_size<false>> waiters_;
};

}  // namespace isogate::front
