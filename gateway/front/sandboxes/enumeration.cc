#include "gateway/front/sandboxes/enumeration.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/front/base/own_fd.h"
#include "gateway/ipc/codec.h"

namespace isogate::front {
namespace asio = boost::asio;

namespace {

struct Enumeration {
  Enumeration(const asio::any_io_executor& executor, Fd end) : pipe(executor, end.release()), done(executor) {
    pipe.native_non_blocking(true);
  }
  asio::posix::stream_descriptor pipe;
  ipc::Reply reply;
  Event done;  // the reply is there, and in the pipe is all that was found
};

asio::awaitable<void> send(std::shared_ptr<Enumeration> state, std::shared_ptr<BackendChannel> channel,
                           ipc::Call call) {
  state->reply = co_await channel->call(std::move(call));
  state->done.set();
  boost::system::error_code ignored;
  state->pipe.cancel(ignored);  // its other end may stay open
}

// Until the pipe ends, or holds no more after the reply. False: what came is no listing, or one of more than
// `most`.
asio::awaitable<bool> read_records(Enumeration& from, size_t most,
                                   const std::function<void(ipc::Found)>& take) {
  std::string buffer, chunk(16384, '\0');
  size_t found = 0, left = SIZE_MAX;
  for (;;) {
    boost::system::error_code error;
    size_t n = 0;
    if (!from.done.is_set()) {
      n = co_await from.pipe.async_read_some(asio::buffer(chunk),
                                             asio::redirect_error(asio::use_awaitable, error));
      if (error == asio::error::operation_aborted && from.done.is_set()) continue;
    } else {
      if (left == SIZE_MAX) left = bytes_in(from.pipe.native_handle()).value_or(0);
      if (left > 0) n = from.pipe.read_some(asio::buffer(chunk, left), error);
      left -= n;
    }
    if (error || n == 0) co_return true;
    buffer.append(chunk, 0, n);
    std::string_view rest = buffer;
    for (;;) {
      auto item = ipc::take_found(rest);
      if (!item || (*item && ++found > most)) co_return false;
      if (!*item) break;
      take(std::move(**item));
    }
    buffer.erase(0, buffer.size() - rest.size());
  }
}

}  // namespace

asio::awaitable<Result<void>> enumerate(std::shared_ptr<BackendChannel> channel,
                                        std::function<ipc::Call(Fd out)> ask, size_t most,
                                        std::function<void(ipc::Found)> take) {
  auto ends = make_pipe();
  if (!ends) co_return ends.error();
  const auto state = std::make_shared<Enumeration>(channel->executor(), std::move(ends->read));
  asio::co_spawn(channel->executor(), send(state, channel, ask(std::move(ends->write))), asio::detached);
  const bool sound = co_await read_records(*state, most, take);
  boost::system::error_code ignored;
  state->pipe.close(ignored);
  // The host's next write fails; what still runs of the call is cancelled in its time, like any other.
  if (!sound) co_return invalid("a malformed listing, or one without end");
  co_await state->done.wait();
  const ipc::Reply& reply = state->reply;
  if (reply.status != ISOGATE_OK) co_return reply.error();
  co_return Result<void>();
}

}  // namespace isogate::front
