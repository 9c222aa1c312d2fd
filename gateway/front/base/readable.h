// Waiting until a descriptor has something to read. The front's one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/front/base/event.h"
#include "lib/fd.h"

namespace isogate::front {

// Until it is readable, at its end, closed or cancelled, or until `done` is set, if given: who sets it also
// cancels the wait, which may just have ended. asio's wait alone may end earlier: an event that it
// has taken from the kernel ends the next wait, even if all was read meanwhile, or if the descriptor was
// closed and another one has got its place in asio (epoll_reactor's object pool).
inline boost::asio::awaitable<void> until_readable(boost::asio::posix::stream_descriptor& descriptor,
                                                   const Event* done = nullptr) {
  boost::system::error_code error;
  const auto ended = [&] { return done != nullptr && done->is_set(); };
  while (!error && !ended() && !is_signalled(descriptor.native_handle()))
    co_await descriptor.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                   boost::asio::redirect_error(boost::asio::use_awaitable, error));
}

}  // namespace isogate::front
