// A timer whose callback cannot outlive it: cancelled, re-set or destroyed, it never calls late. And a pause
// of a coroutine. The front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>

namespace isogate::front {

class Alarm {
 public:
  explicit Alarm(const boost::asio::any_io_executor& executor) : timer_(executor) {}
  ~Alarm() { cancel(); }
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;

  void set(std::chrono::nanoseconds after, std::function<void()> ring) {
    ring_ = std::make_shared<std::function<void()>>(std::move(ring));
    timer_.expires_after(after);
    timer_.async_wait([weak = std::weak_ptr(ring_)](boost::system::error_code error) {
      const auto alive = weak.lock();
      if (alive && !error) (*alive)();
    });
  }
  void cancel() {
    ring_.reset();
    timer_.cancel();
  }

 private:
  boost::asio::steady_timer timer_;
  std::shared_ptr<std::function<void()>> ring_;
};

inline boost::asio::awaitable<void> sleep_for(boost::asio::any_io_executor executor,
                                              std::chrono::nanoseconds time) {
  boost::asio::steady_timer timer(executor, time);
  co_await timer.async_wait(boost::asio::use_awaitable);
}

}  // namespace isogate::front
