// Work of any size on the front's one thread, done in steps: all that waits for the thread has its turn
// between two of them. A step should take some milliseconds at the most.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstddef>
#include <iterator>

namespace isogate::front {

class Steps {
 public:
  explicit Steps(size_t most) : most_(most) {}
  // Counts what was done. True: it is as much as one step may have; then `co_await let_others()`.
  [[nodiscard]] bool over(size_t units = 1) {
    done_ += units;
    if (done_ < most_) return false;
    done_ = 0;
    return true;
  }

 private:
  size_t most_;
  size_t done_ = 0;
};

inline boost::asio::awaitable<void> let_others() { co_await boost::asio::post(boost::asio::use_awaitable); }

// Destroys the elements of what may have a million.
template <typename Container>
boost::asio::awaitable<void> clear_in_steps(Container& elements) {
  Steps steps(1000);
  while (!elements.empty()) {
    elements.erase(std::prev(elements.end()));
    if (steps.over()) co_await let_others();
  }
}

}  // namespace isogate::front
