#include "gateway/front/sandboxes/file_calls.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <cerrno>

#include "gateway/front/base/own_fd.h"
#include "gateway/front/base/readable.h"
#include "gateway/ipc/codec.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr int kPipeBytes = 1 << 20;
constexpr std::chrono::seconds kLongest{600};  // a tree to remove, a disk to write to, a file to copy
constexpr size_t kMostNameBytes = 16 << 20;    // of one listing, kept until its answer is made

// Reads items until the pipe ends. A malformed item is the backend's defect.
asio::awaitable<void> collect(Transfer& transfer, Listing& listing, uint64_t limit, ByteShare& memory) {
  std::string buffer;
  std::string chunk(65536, '\0');
  size_t name_bytes = 0;
  for (;;) {
    boost::system::error_code error;
    const size_t n = co_await transfer.pipe.async_read_some(asio::buffer(chunk),
                                                            asio::redirect_error(asio::use_awaitable, error));
    if (error || n == 0) break;
    transfer.moved(n);
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

std::string within(std::chrono::seconds limit) {
  return "within " + std::to_string(limit.count()) + " s (limits.body_idle_timeout_sec)";
}

// Throws ApiError.
OnBehalf place_for_call(const Lease& lease, bool durable) {
  const std::string& tenant = lease.sandbox->row.tenant;
  auto place = lease.backend->file_calls.enter(tenant);
  return lease.with_place(std::move(place), durable ? lease.backend->durable_writes.enter(tenant) : nullptr);
}

}  // namespace

ipc::FileCall file_call(const Lease& lease, ipc::FileVerb verb, FileTarget target) {
  ipc::FileCall call;
  call.call.request_id = std::move(target.request_id);
  call.verb = verb;
  call.sandbox_id = lease.sandbox->row.sandbox_id;
  static_cast<ipc::FileArguments&>(call) = std::move(target);
  return call;
}

asio::awaitable<ipc::Reply> plain_file_call(Lease& lease, ipc::FileVerb verb, FileTarget target,
                                            Killer& killer) {
  OnBehalf whose = place_for_call(lease, false);
  const std::shared_ptr<Cancel> cancel = or_throw(Cancel::make(lease.channel->executor()));
  const auto limit = verb == ipc::FileVerb::kRemove ? kLongest : target.idle;
  cancel->fire_after(limit);
  const OnKill on_kill(killer, [cancel] { cancel->fire(); });
  bool ended = false;
  const OnSandboxEnd on_end(*lease.sandbox, [cancel, &ended] {
    ended = true;
    cancel->fire();
  });
  ipc::Reply reply =
      co_await lease.channel->call(file_call(lease, verb, std::move(target)), cancel, std::move(whose));
  if (reply.status == ISOGATE_CANCELLED && cancel->fired() && !killer.killed() && !ended)
    reply.message = "the backend did not answer " + within(limit);
  co_return reply;
}

asio::awaitable<Listing> list_files(Lease& lease, ListRequest request, ByteShare& memory, Killer& killer) {
  if (request.recursive) request.target.flags |= ISOGATE_FILE_RECURSIVE;
  request.target.limit = request.limit == 0 ? 0 : request.limit + 1;
  Transfer transfer(lease, ipc::FileVerb::kList, std::move(request.target), &killer);
  Listing listing;
  co_await collect(transfer, listing, request.limit, memory);
  listing.reply = co_await transfer.reply();
  const bool too_deep =
      listing.reply.status == ISOGATE_RESOURCE_EXHAUSTED && listing.reply.os_errno == ENAMETOOLONG;
  if (too_deep) {
    listing.truncated = true;
    listing.reply.status = ISOGATE_OK;
  }
  co_return listing;
}

// Lives until the backend has answered. A sandbox that is ended cancels it, whatever its client does.
struct Transfer::Shared {
  Shared(const Lease& lease, Transfer& transfer, bool inwards, bool durable, std::chrono::seconds idle)
      : owner(&transfer),
        inward(inwards),
        limit(idle),
        sandbox(lease.sandbox),
        tick(lease.channel->executor()),
        done(lease.channel->executor()),
        cancel(or_throw(Cancel::make(lease.channel->executor()))),
        whose(place_for_call(lease, durable)) {}
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  static asio::awaitable<void> run(std::shared_ptr<Shared> self, std::shared_ptr<BackendChannel> channel,
                                   ipc::FileCall call) {
    self->look();
    self->reply = co_await channel->call(std::move(call), self->cancel, std::move(self->whose));
    self->tick.cancel();
    self->on_end.leave();
    if (self->stalled && self->reply.status == ISOGATE_CANCELLED)
      self->reply.message = "the backend did not go on with the file " + within(self->limit);
    // Of a write that took another number of bytes than its body has, nobody knows what it has committed.
    const auto* written = std::get_if<ipc::Written>(&self->reply.value);
    if (written != nullptr && (!self->whole || written->bytes != self->moved)) {
      self->reply.status = ISOGATE_LOST;
      self->reply.message = "a defect of the plugin: write() reported " + std::to_string(written->bytes) +
                            " bytes after " + std::to_string(self->moved) +
                            (self->whole ? " of a complete body" : " of an incomplete body");
      self->reply.value = {};
    }
    self->done.set();
    // The host may still hold the far end.
    if (self->reply.status == ISOGATE_LOST && self->owner != nullptr) self->owner->close_pipe();
    if (self->awaits_bytes && self->owner != nullptr) self->owner->stop_waiting();
  }

  // While it lives, the front waits for the backend, whatever is in the pipe.
  class Wait {
   public:
    explicit Wait(Shared& shared) : shared_(shared) {
      if (shared_.waits++ == 0) shared_.since = std::chrono::steady_clock::now();
    }
    ~Wait() { --shared_.waits; }
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;

   private:
    Shared& shared_;
  };

  // What the backend has taken or given since it was looked at last. Where it is the client that has to go
  // on, the backend has time.
  void look() {
    const uint64_t waiting = owner == nullptr ? 0 : bytes_in(owner->pipe.native_handle()).value_or(0);
    const uint64_t progress = inward ? moved - waiting : moved + waiting;
    const bool clients_turn =
        waits == 0 && owner != nullptr && owner->pipe.is_open() && inward == (waiting == 0);
    const auto now = std::chrono::steady_clock::now();
    if (clients_turn || progress != seen) since = now;
    seen = progress;
    stalled = stalled || now - since >= limit;
    if (stalled) return cancel->fire();
    tick.set(std::chrono::milliseconds(limit) / 4, [this] { look(); });
  }

  Transfer* owner;  // null: it is gone
  const bool inward;
  std::chrono::seconds limit;
  uint64_t moved = 0, seen = 0;
  std::chrono::steady_clock::time_point since = std::chrono::steady_clock::now();
  bool stalled = false, awaits_bytes = false;
  int waits = 0;
  bool whole = false;  // the body has been marked as complete
  std::shared_ptr<Sandbox> sandbox;
  Alarm tick;
  Event done;
  std::shared_ptr<Cancel> cancel;
  OnBehalf whose;
  OnSandboxEnd on_end{*sandbox, [this] { cancel->fire(); }};
  ipc::Reply reply;
};

Transfer::~Transfer() {
  cancel();
  shared_->owner = nullptr;
}

Transfer::Transfer(Lease& lease, ipc::FileVerb verb, FileTarget target, Killer* killer)
    : pipe(lease.channel->executor()),
      shared_(std::make_shared<Shared>(
          lease, *this, verb == ipc::FileVerb::kWrite,
          verb == ipc::FileVerb::kWrite && (target.flags & ISOGATE_FILE_DURABLE) != 0, target.idle)),
      slow_end_((target.flags & (ISOGATE_FILE_DURABLE | ISOGATE_FILE_APPEND)) != 0) {
  Pipe ends = or_throw(make_pipe());
  ::fcntl(ends.write.get(), F_SETPIPE_SZ, kPipeBytes);  // smaller where the user's allowance is used up
  ipc::FileCall call = file_call(lease, verb, std::move(target));
  const bool inward = verb == ipc::FileVerb::kWrite;
  if (inward) {
    Mark complete = or_throw(make_mark());
    complete_ = std::move(complete.own);
    call.complete = std::move(complete.theirs);
  }
  call.body = std::move(inward ? ends.read : ends.write);
  pipe.assign((inward ? ends.write : ends.read).release());
  pipe.native_non_blocking(true);
  asio::co_spawn(lease.channel->executor(), Shared::run(shared_, lease.channel, std::move(call)),
                 asio::detached);
  if (killer != nullptr) on_kill_.emplace(*killer, [this] { cancel(); });
}

void Transfer::cancel() { shared_->cancel->fire(); }

// In this order: who sees the end of the pipe can see that it is the body's.
void Transfer::complete() {
  signal_mark(complete_.get());
  shared_->whole = true;
  close_pipe();
  shared_->since = std::chrono::steady_clock::now();
  if (slow_end_) shared_->limit = std::max(shared_->limit, kLongest);
}

void Transfer::close_pipe() {
  boost::system::error_code ignored;
  pipe.close(ignored);
}

void Transfer::moved(uint64_t bytes) { shared_->moved += bytes; }

bool Transfer::answered() const { return shared_->done.is_set(); }

uint64_t Transfer::room() const {
  const int size = ::fcntl(const_cast<asio::posix::stream_descriptor&>(pipe).native_handle(), F_GETPIPE_SZ);
  return size > 0 ? static_cast<uint64_t>(size) / 4 : 0;
}

void Transfer::stop_waiting() {
  boost::system::error_code ignored;
  pipe.cancel(ignored);
}

asio::awaitable<void> Transfer::ready() {
  const std::shared_ptr<Shared> shared = shared_;
  const Shared::Wait wait(*shared);
  shared->awaits_bytes = true;
  co_await until_readable(pipe, &shared->done);
  shared->awaits_bytes = false;
  if (bytes_in(pipe.native_handle()).value_or(0) == 0) co_await shared->done.wait();
}

asio::awaitable<ipc::Reply> Transfer::reply() {
  const std::shared_ptr<Shared> shared = shared_;
  const Shared::Wait wait(*shared);
  co_await shared->done.wait();
  co_return shared->reply;
}

}  // namespace isogate::front
