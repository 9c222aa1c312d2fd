// The listings that a host writes into a pipe: its sandboxes, or what lost ones have left. The front's one
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>

#include "gateway/front/sandboxes/backend_channel.h"

namespace isogate::front {

// Sends the call that `ask` makes around the pipe's end, and gives each record to `take`; `most` of them at
// most. An error: what came is no listing, is one of more, or the host refuses.
boost::asio::awaitable<Result<void>> enumerate(std::shared_ptr<BackendChannel> channel,
                                               std::function<ipc::Call(Fd out)> ask, size_t most,
                                               std::function<void(ipc::Found)> take);

}  // namespace isogate::front
