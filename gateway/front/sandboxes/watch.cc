#include "gateway/front/sandboxes/watch.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <utility>

#include "gateway/front/base/own_fd.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr size_t kReadAtOnce = 8 << 10;

// Throws ApiError.
OnBehalf place_for_watch(const Lease& lease) {
  if (lease.sandbox->watches.size() >= kMostWatchesPerSandbox)
    throw ApiError{.code = Code::kRateLimited,
                   .message = std::to_string(kMostWatchesPerSandbox) +
                              " watches of this sandbox are under way; try again when one has ended",
                   .retry_after_sec = 1};
  return lease.with_place(lease.backend->watches.enter(lease.sandbox->row.tenant));
}

}  // namespace

// Lives until the backend has answered.
struct Watch::Shared {
  Shared(const Lease& lease, Watch& watch)
      : owner(&watch),
        sandbox(lease.sandbox),
        channel(lease.channel->shared_from_this()),
        done(channel->executor()),
        whose(place_for_watch(lease)),
        cancel(or_throw(Cancel::make(channel->executor()))) {
    sandbox->watches.insert(&end);
    channel->on_retire.insert(&retired);
  }
  ~Shared() { leave(); }
  Shared(const Shared&) = delete;
  Shared& operator=(const Shared&) = delete;

  void leave() {
    sandbox->watches.erase(&end);
    channel->on_retire.erase(&retired);
  }

  static asio::awaitable<void> run(std::shared_ptr<Shared> self, ipc::FileCall call) {
    self->reply = co_await self->channel->call(std::move(call), self->cancel, std::move(self->whose));
    self->leave();
    self->done.set();
    // The host may still hold the far end.
    if (self->reply.status == ISOGATE_LOST && self->owner != nullptr) self->owner->wake();
  }

  void finish(WatchEnd reason, std::string text) {
    if (why || done.is_set()) return;
    why = reason;
    message = std::move(text);
    cancel->fire();
    if (owner != nullptr) owner->wake();
  }

  Watch* owner;  // null: it is gone
  std::shared_ptr<Sandbox> sandbox;
  std::shared_ptr<BackendChannel> channel;  // not held: a reload does not wait for it
  Event done;
  OnBehalf whose;
  std::shared_ptr<Cancel> cancel;
  std::function<void(WatchEnd)> end = [this](WatchEnd reason) { finish(reason, {}); };
  std::function<void()> retired = [this] { finish(WatchEnd::kReloaded, {}); };
  std::optional<WatchEnd> why;  // where the front ended it
  std::string message;
  ipc::Reply reply;
};

Watch::Watch(Lease& lease, FileTarget target)
    : pipe_(lease.channel->executor()),
      shared_(std::make_shared<Shared>(lease, *this)),
      silence_(lease.channel->executor()),
      begins_within_(target.idle) {
  Pipe ends = or_throw(make_pipe());
  ipc::FileCall call = file_call(lease, ipc::FileVerb::kWatch, std::move(target));
  call.body = std::move(ends.write);
  pipe_.assign(ends.read.release());
  pipe_.native_non_blocking(true);
  asio::co_spawn(lease.channel->executor(), Shared::run(shared_, std::move(call)), asio::detached);
}

Watch::~Watch() {
  shared_->owner = nullptr;
  shared_->finish(WatchEnd::kFailed, {});
}

void Watch::wake() {
  boost::system::error_code ignored;
  pipe_.cancel(ignored);
}

void Watch::end(WatchEnd why, std::string message) { shared_->finish(why, std::move(message)); }

std::optional<WatchEnd> Watch::over() const {
  if (shared_->why) return shared_->why;
  if (!shared_->done.is_set() || (!at_end_ && shared_->reply.status != ISOGATE_LOST)) return std::nullopt;
  return shared_->reply.status == ISOGATE_OK ? WatchEnd::kRemoved : WatchEnd::kFailed;
}

const std::string& Watch::message() const {
  return shared_->message.empty() ? shared_->reply.message : shared_->message;
}

const ipc::Reply* Watch::reply() const {
  return !shared_->why && shared_->done.is_set() ? &shared_->reply : nullptr;
}

// 0: it was woken, or the pipe has ended and the backend has answered.
asio::awaitable<size_t> Watch::read_some() {
  const size_t kept = buffer_.size();
  buffer_.resize(kept + kReadAtOnce);
  boost::system::error_code error;
  const size_t n = co_await pipe_.async_read_some(asio::buffer(buffer_.data() + kept, kReadAtOnce),
                                                  asio::redirect_error(asio::use_awaitable, error));
  buffer_.resize(kept + n);
  if (error == asio::error::operation_aborted || n > 0) co_return n;
  at_end_ = true;
  co_await shared_->done.wait();
  co_return 0;
}

// Of what was read. False: there is no whole record. What follows READY is for the next call.
bool Watch::take_kept(const Take& take) {
  std::string_view rest = buffer_;
  bool took = false;
  for (bool more = true; more;) {
    const auto change = take_change(rest);
    const bool malformed =
        !change || (change->has_value() && !ready_ && (*change)->type != ISOGATE_CHANGE_READY);
    if (malformed) {
      end(WatchEnd::kFailed, "the backend sent what is no change");
      return true;
    }
    if (!change->has_value()) break;
    more = ready_;
    took = ready_ = true;
    if ((*change)->type != ISOGATE_CHANGE_READY) more = take(**change);
  }
  buffer_.erase(0, buffer_.size() - rest.size());
  return took;
}

asio::awaitable<void> Watch::read(std::chrono::nanoseconds limit, const Take& take) {
  if (over() || take_kept(take)) co_return;
  silence_.set(limit, [this] { wake(); });
  const size_t n = co_await read_some();
  silence_.cancel();
  if (n > 0) take_kept(take);
}

asio::awaitable<bool> Watch::begin() {
  const auto until = std::chrono::steady_clock::now() + begins_within_;
  const Take none = [](const FileChange&) { return true; };
  while (!ready_ && !over()) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= until) {
      end(WatchEnd::kFailed, "the backend did not begin to watch within " +
                                 std::to_string(begins_within_.count()) +
                                 " s (limits.body_idle_timeout_sec)");
      break;
    }
    co_await read(until - now, none);
  }
  co_return ready_;
}

}  // namespace isogate::front
