#include "gateway/front/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>

#include "gateway/front/own_fd.h"
#include "gateway/ipc/codec.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr int kPipeBytes = 1 << 20;

// Reads items until the pipe ends. A malformed item is the backend's defect.
asio::awaitable<void> collect(asio::posix::stream_descriptor& pipe, Listing& listing, uint64_t limit) {
  std::string buffer;
  std::string chunk(65536, '\0');
  for (;;) {
    boost::system::error_code error;
    const size_t n =
        co_await pipe.async_read_some(asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
    if (error || n == 0) break;
    buffer.append(chunk, 0, n);
    std::string_view rest = buffer;
    for (;;) {
      auto item = ipc::take_entry(rest);
      if (!item) throw ApiError{.code = Code::kInternal, .message = "the backend sent a malformed listing"};
      if (!*item) break;
      if (limit != 0 && listing.entries.size() >= limit) {
        listing.truncated = true;
      } else {
        listing.entries.push_back(std::move(**item));
      }
    }
    buffer.erase(0, buffer.size() - rest.size());
  }
}

}  // namespace

ipc::FileCall file_call(const Lease& lease, ipc::FileVerb verb, FileTarget target) {
  ipc::FileCall call;
  call.call.request_id = std::move(target.request_id);
  call.verb = verb;
  call.sandbox_id = lease.sandbox->row.sandbox_id;
  call.path = std::move(target.path);
  call.path_to = std::move(target.path_to);
  call.user = std::move(target.user);
  call.scope = target.scope;
  call.flags = target.flags;
  call.mode = target.mode;
  call.offset = target.offset;
  call.limit = target.limit;
  return call;
}

asio::awaitable<ipc::Reply> plain_file_call(Lease& lease, ipc::FileVerb verb, FileTarget target) {
  co_return co_await lease.channel->call(file_call(lease, verb, std::move(target)));
}

asio::awaitable<Listing> list_files(Lease& lease, ListRequest request) {
  if (request.recursive) request.target.flags |= ISOGATE_FILE_RECURSIVE;
  request.target.limit = request.limit == 0 ? 0 : request.limit + 1;
  Transfer transfer(lease, ipc::FileVerb::kList, std::move(request.target));
  Listing listing;
  co_await collect(transfer.pipe, listing, request.limit);
  const ipc::Reply reply = co_await transfer.reply();
  listing.status = reply.status;
  listing.message = reply.message;
  co_return listing;
}

Transfer::Transfer(Lease& lease, ipc::FileVerb verb, FileTarget target)
    : pipe(lease.channel->executor()),
      shared_(std::make_shared<Shared>(lease.channel->executor())),
      cancel_(or_throw(make_event())) {
  Pipe ends = or_throw(make_pipe());
  ::fcntl(ends.write.get(), F_SETPIPE_SZ, kPipeBytes);  // smaller where the user's allowance is used up
  ipc::FileCall call = file_call(lease, verb, std::move(target));
  call.call.cancel = duplicate(cancel_);
  const bool inward = verb == ipc::FileVerb::kWrite;
  call.body = std::move(inward ? ends.read : ends.write);
  pipe.assign((inward ? ends.write : ends.read).release());
  pipe.native_non_blocking(true);
  asio::co_spawn(
      lease.channel->executor(),
      [](std::shared_ptr<BackendChannel> channel, ipc::FileCall record,
         std::shared_ptr<Shared> shared) -> asio::awaitable<void> {
        shared->reply = co_await channel->call(std::move(record));
        shared->done.set();
      }(lease.channel, std::move(call), shared_),
      asio::detached);
}

void Transfer::cancel() {
  if (cancel_) signal_event(cancel_.get());
}

void Transfer::close_pipe() {
  boost::system::error_code ignored;
  pipe.close(ignored);
}

asio::awaitable<ipc::Reply> Transfer::reply() {
  co_await shared_->done.wait();
  co_return shared_->reply;
}

}  // namespace isogate::front
