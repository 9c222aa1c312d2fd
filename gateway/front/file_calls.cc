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
constexpr size_t kMostNameBytes = 16 << 20;  // of one listing, kept until its answer is made

// Reads items until the pipe ends. A malformed item is the backend's defect.
asio::awaitable<void> collect(asio::posix::stream_descriptor& pipe, Listing& listing, uint64_t limit,
                              MemoryShare& memory) {
  std::string buffer;
  std::string chunk(65536, '\0');
  size_t name_bytes = 0;
  for (;;) {
    boost::system::error_code error;
    const size_t n =
        co_await pipe.async_read_some(asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
    if (error || n == 0) break;
    buffer.append(chunk, 0, n);
    std::string_view rest = buffer;
    uint64_t kept = 0;
    for (;;) {
      auto item = ipc::take_entry(rest);
      if (!item) throw ApiError{.code = Code::kInternal, .message = "the backend sent a malformed listing"};
      if (!*item) break;
      name_bytes += (*item)->name.size();
      if ((limit != 0 && listing.entries.size() >= limit) || name_bytes > kMostNameBytes) {
        listing.truncated = true;
      } else {
        kept += sizeof(ipc::Entry) + (*item)->name.size();
        listing.entries.push_back(std::move(**item));
      }
    }
    memory.add(kept);
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
  const auto ticket = lease.backend->gate.enter(lease.sandbox->row.tenant);
  co_return co_await lease.channel->call(file_call(lease, verb, std::move(target)));
}

asio::awaitable<Listing> list_files(Lease& lease, ListRequest request, MemoryShare& memory, Killer* killer) {
  if (request.recursive) request.target.flags |= ISOGATE_FILE_RECURSIVE;
  request.target.limit = request.limit == 0 ? 0 : request.limit + 1;
  Transfer transfer(lease, ipc::FileVerb::kList, std::move(request.target));
  const TransferKill kill(killer, transfer);
  Listing listing;
  co_await collect(transfer.pipe, listing, request.limit, memory);
  const ipc::Reply reply = co_await transfer.reply();
  listing.status = reply.status;
  listing.message = reply.message;
  co_return listing;
}

// Lives until the backend has answered. A sandbox that is ended cancels it, whatever its client does.
struct Transfer::Shared {
  explicit Shared(const Lease& lease)
      : sandbox(lease.sandbox),
        backend(lease.backend),
        done(lease.channel->executor()),
        cancel(or_throw(Cancel::make(lease.channel->executor()))),
        ticket(backend->gate.enter(sandbox->row.tenant)) {
    sandbox->kills.insert(&kill);
  }
  ~Shared() { sandbox->kills.erase(&kill); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  static asio::awaitable<void> run(std::shared_ptr<Shared> self, std::shared_ptr<BackendChannel> channel,
                                   ipc::FileCall call) {
    self->reply = co_await channel->call(std::move(call), self->cancel);
    self->sandbox->kills.erase(&self->kill);
    self->ticket.reset();
    self->done.set();
  }

  std::shared_ptr<Sandbox> sandbox;
  std::shared_ptr<Backend> backend;
  Event done;
  std::shared_ptr<Cancel> cancel;
  std::optional<CallGate::Ticket> ticket;
  std::function<void()> kill = [this] { cancel->fire(); };
  ipc::Reply reply;
};

Transfer::~Transfer() { cancel(); }

Transfer::Transfer(Lease& lease, ipc::FileVerb verb, FileTarget target)
    : pipe(lease.channel->executor()), shared_(std::make_shared<Shared>(lease)) {
  Pipe ends = or_throw(make_pipe());
  ::fcntl(ends.write.get(), F_SETPIPE_SZ, kPipeBytes);  // smaller where the user's allowance is used up
  ipc::FileCall call = file_call(lease, verb, std::move(target));
  const bool inward = verb == ipc::FileVerb::kWrite;
  if (inward) {
    complete_ = or_throw(make_event());
    call.complete = duplicate(complete_);
  }
  call.body = std::move(inward ? ends.read : ends.write);
  pipe.assign((inward ? ends.write : ends.read).release());
  pipe.native_non_blocking(true);
  asio::co_spawn(lease.channel->executor(), Shared::run(shared_, lease.channel, std::move(call)),
                 asio::detached);
}

void Transfer::cancel() { shared_->cancel->fire(); }

TransferKill::TransferKill(Killer* killer, Transfer& transfer) : killer_(killer) {
  if (killer_ != nullptr) killer_->on_kill([&transfer] { transfer.cancel(); });
}

TransferKill::~TransferKill() {
  if (killer_ != nullptr) killer_->on_kill({});
}

// In this order: who sees the end of the pipe can see that it is the body's.
void Transfer::complete() {
  boost::system::error_code ignored;
  signal_event(complete_.get());
  pipe.close(ignored);
}

asio::awaitable<ipc::Reply> Transfer::reply() {
  co_await shared_->done.wait();
  co_return shared_->reply;
}

}  // namespace isogate::front
