// The listings that a host writes into a pipe: its sandboxes, or what lost ones have left. The front's one
// thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <functional>
#include <memory>

#include "gateway/front/backends/backend_channel.h"

namespace isogate::front {

// Sends the call that `ask` makes with the pipe's end, and passes each record to `take`; at most `most`
// records. An error: the data is no listing, has more records, or the host refuses.
boost::asio::awaitable<Result<void>> enumerate(std::shared_ptr<BackendChannel> channel,
                                               std::function<ipc::Call(Fd out)> ask, size_t most,
                                               std::function<void(ipc::Found)> take);

}  // namespace isogate::front
