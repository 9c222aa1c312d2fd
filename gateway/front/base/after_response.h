// Work that a client need not wait for. The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/post.hpp>
#include <utility>

namespace isogate::front {

// Runs `work` when what runs now waits, before anything that happens later. A response that is written next
// is with the kernel by then, and the next request is not read yet: nobody can see that the work came late.
template <typename Work>
void after_response(const boost::asio::any_io_executor& executor, Work&& work) {
  boost::asio::post(executor, std::forward<Work>(work));
}

}  // namespace isogate::front
