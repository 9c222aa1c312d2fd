// Work that would hold the front's one thread up (the JSON of a large body), done on another one.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>

namespace isogate::front {

class Elsewhere {
 public:
  explicit Elsewhere(boost::asio::any_io_executor executor);
  ~Elsewhere();  // waits for what is at work

  // Returns when `work` has ended, and throws what it has thrown. It must own all that it uses, and wait for
  // nothing: whoever waits for it may be gone before. On the front's thread.
  boost::asio::awaitable<void> run(std::function<void()> work);

 private:
  struct Thread;
  boost::asio::any_io_executor executor_;
  std::unique_ptr<Thread> thread_;
};

}  // namespace isogate::front
