// What the hosts of an earlier front, or the host before a reload, left running.
#include <sys/ioctl.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include "gateway/base/log.h"
#include "gateway/front/sandboxes.h"
#include "gateway/ipc/codec.h"

namespace isogate::front {
namespace asio = boost::asio;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {

constexpr size_t kAtOnce = 8;  // less than what a host keeps beside execs and file calls
constexpr int kTries = 6;
constexpr size_t kMoreThanKnown = 1 << 16;  // that a backend may enumerate
constexpr size_t kUnknownTold = 16;
constexpr seconds kLook{1};

seconds pause_after(int tries) { return seconds(1 << tries); }

using Ids = std::unordered_set<std::string>;

struct Enumeration {
  Enumeration(const asio::any_io_executor& executor, Fd end) : pipe(executor, end.release()), done(executor) {
    pipe.native_non_blocking(true);
  }
  asio::posix::stream_descriptor pipe;
  ipc::Reply reply;
  Event done;  // the reply is there, and in the pipe is all that was found
};

asio::awaitable<void> ask(std::shared_ptr<Enumeration> state, std::shared_ptr<BackendChannel> channel,
                          Fd out) {
  ipc::EnumerateCall call;
  call.call.request_id = "take-up";
  call.out = std::move(out);
  state->reply = co_await channel->call(std::move(call));
  state->done.set();
  boost::system::error_code ignored;
  state->pipe.cancel(ignored);  // its other end may stay open
}

size_t waiting_in(asio::posix::stream_descriptor& pipe) {
  int waiting = 0;
  return ::ioctl(pipe.native_handle(), FIONREAD, &waiting) == 0 ? static_cast<size_t>(waiting) : 0;
}

// Until the pipe ends, or holds no more after the reply. False: what came is no listing, or one of more than
// `most`.
asio::awaitable<bool> read_ids(Enumeration& from, size_t most, Ids& running) {
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
      if (left == SIZE_MAX) left = waiting_in(from.pipe);
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
      if (((*item)->flags & ISOGATE_SANDBOX_RUNS) != 0) running.insert(std::move((*item)->sandbox_id));
    }
    buffer.erase(0, buffer.size() - rest.size());
  }
}

// The ids of what runs; nullopt: it could not be found out.
asio::awaitable<std::optional<Ids>> enumerate(std::shared_ptr<BackendChannel> channel, size_t most) {
  auto ends = make_pipe();
  if (!ends) co_return std::nullopt;
  const auto state = std::make_shared<Enumeration>(channel->executor(), std::move(ends->read));
  asio::co_spawn(channel->executor(), ask(state, channel, std::move(ends->write)), asio::detached);
  Ids running;
  const bool sound = co_await read_ids(*state, most, running);
  boost::system::error_code ignored;
  state->pipe.close(ignored);
  co_await state->done.wait();
  if (sound && state->reply.status == ISOGATE_OK) co_return running;
  log::warn("sandboxes_not_enumerated",
            {{"reason", sound ? state->reply.message : "a malformed listing, or one without end"}});
  co_return std::nullopt;
}

// Whatever is not known for sure is a file.
asio::awaitable<bool> has_no_files(const Sandbox& sandbox, std::shared_ptr<BackendChannel> channel) {
  auto ends = make_pipe();
  if (!ends) co_return false;
  asio::posix::stream_descriptor pipe(channel->executor(), ends->read.release());
  ipc::FileCall call;
  call.call.request_id = "clean-up";
  call.verb = ipc::FileVerb::kList;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.limit = 1;
  call.body = std::move(ends->write);
  const ipc::Reply reply = co_await channel->call(std::move(call));
  int waiting = 0;
  co_return reply.status == ISOGATE_OK&& ::ioctl(pipe.native_handle(), FIONREAD, &waiting) == 0 &&
      waiting == 0;
}

class Counted {
 public:
  explicit Counted(size_t& count) : count_(count) { ++count_; }
  ~Counted() { --count_; }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  size_t& count_;
};

}  // namespace

struct Sandboxes::Left {
  std::shared_ptr<Sandbox> sandbox;
  int tries = 0;
  steady_clock::time_point due;
  bool done = false;
};

struct Sandboxes::Round {
  explicit Round(const asio::any_io_executor& executor) : end(executor) {}
  std::vector<Left*> todo;
  size_t next = 0, working = 0;
  Event end;
};

asio::awaitable<void> Sandboxes::take_up(std::shared_ptr<Backend> backend) {
  const auto channel = backend->channel;
  asio::steady_timer pause(executor_);
  std::optional<std::vector<Left>> left;
  for (int tries = 0; backend->channel == channel;) {
    const bool serves = backend->probe && backend->probe->verdict != ISOGATE_PROBE_UNAVAILABLE;
    if (serves) {
      const Counted counted(taking_up_);
      if (!left) co_await end_never_accepted(backend);
      if (!left) left = co_await look_what_runs(*backend);
      if (!left) tries = std::min(tries + 1, kTries);
      if (left) co_await take_up_due(backend, *left);
    }
    if (left && left->empty()) co_return;
    pause.expires_after(left ? kLook : pause_after(tries));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

// What a crash left between its intent and its acceptance, or in the middle of its purge. Nothing of a tenant
// ran in the former: what holds no file is removed, the rest is stopped and found again by who calls.
asio::awaitable<void> Sandboxes::end_never_accepted(std::shared_ptr<Backend> backend) {
  std::vector<std::shared_ptr<Sandbox>> due;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!sandbox->left_over || sandbox->row.backend != backend->config.name) continue;
    sandbox->left_over = false;  // tried once: what ends its host would end it again and again
    if (sandbox->known && !sandbox->row.was_accepted() && !sandbox->open_in) due.push_back(sandbox);
  }
  for (const auto& sandbox : due) {
    const auto now = sandboxes_.find(sandbox->row.sandbox_id);  // its agent may have ended it and begun anew
    if (!sandbox->known || now == sandboxes_.end() || now->second != sandbox) continue;
    if (!backend->channel || sandbox->changing || sandbox->calls != 0 || sandbox->open_in) continue;
    const Wanted wanted{
        .tenant = sandbox->row.tenant, .agent = sandbox->row.agent_id, .request_id = "clean-up"};
    std::string why_not;
    try {
      if (!sandbox->closing) {
        const Change changing(sandbox);
        const bool there = co_await attach_to_close(*sandbox, *backend, wanted.request_id);
        const bool empty = !there || co_await has_no_files(*sandbox, sandbox->open_in);
        sandbox->closing = empty ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
      }
      co_await finish_closing(sandbox, wanted);
    } catch (const ApiError& error) {
      why_not = error.message;
    } catch (const std::exception& error) {
      why_not = error.what();
    }
    if (!why_not.empty()) {
      log::warn("sandbox_not_ended", {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", why_not}});
      continue;
    }
    log::info("sandbox_never_accepted_ended", {{"sandbox_id", sandbox->row.sandbox_id}});
    if (!sandbox->known) continue;
    sandbox->known = false;
    state_.remove_sandbox(sandbox->row.sandbox_id, {});
    forget_if_unknown(std::string(sandbox->row.sandbox_id));
  }
}

asio::awaitable<std::optional<std::vector<Sandboxes::Left>>> Sandboxes::look_what_runs(
    const Backend& backend) {
  const auto channel = backend.channel;
  const auto running = co_await enumerate(channel, most_ + std::min(most_, kMoreThanKnown));
  if (!running) co_return std::nullopt;
  std::vector<Left> left;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!sandbox->known || !sandbox->row.was_accepted() || sandbox->closing) continue;
    if (sandbox->row.backend != backend.config.name || sandbox->open_in == channel) continue;
    if (running->contains(id) || (sandbox->runs && sandbox->open_in)) left.push_back({.sandbox = sandbox});
  }
  size_t unknown = 0;
  for (const std::string& id : *running)
    if (!sandboxes_.contains(id) && ++unknown <= kUnknownTold)
      log::warn("sandbox_runs_unknown", {{"backend", backend.config.name}, {"sandbox_id", id}});
  if (unknown > kUnknownTold)
    log::warn("sandboxes_run_unknown", {{"backend", backend.config.name}, {"count", unknown}});
  if (!left.empty())
    log::info("sandboxes_run_already", {{"backend", backend.config.name}, {"count", left.size()}});
  co_return left;
}

asio::awaitable<void> Sandboxes::take_up_due(std::shared_ptr<Backend> backend, std::vector<Left>& left) {
  const auto round = std::make_shared<Round>(executor_);
  for (Left& each : left) {
    const bool busy = backend->channel && busy_before(*each.sandbox, *backend->channel);
    if (!busy && !each.sandbox->changing && each.due <= steady_clock::now()) round->todo.push_back(&each);
  }
  round->working = std::min(kAtOnce, round->todo.size());
  if (round->working == 0) co_return;
  for (size_t i = round->working; i > 0; --i)
    asio::co_spawn(executor_, take_up_some(backend, round), asio::detached);
  co_await round->end.wait();
  std::erase_if(left, [](const Left& each) { return each.done; });
}

asio::awaitable<void> Sandboxes::take_up_some(std::shared_ptr<Backend> backend,
                                              std::shared_ptr<Round> round) {
  while (round->next < round->todo.size()) co_await take_up_one(*backend, *round->todo[round->next++]);
  if (--round->working == 0) round->end.set();
}

// A call that comes meanwhile waits, and opens it itself if need be.
asio::awaitable<void> Sandboxes::take_up_one(Backend& backend, Left& left) {
  Sandbox& sandbox = *left.sandbox;
  if (!backend.channel || sandbox.changing || busy_before(sandbox, *backend.channel)) co_return;
  left.done = !sandbox.known || sandbox.closing || sandbox.open_in == backend.channel;
  if (left.done) co_return;
  const Change changing(left.sandbox);
  const Wanted wanted{.tenant = sandbox.row.tenant, .agent = sandbox.row.agent_id, .request_id = "take-up"};
  std::string why_not;
  try {
    co_await open(sandbox, backend, wanted, ISOGATE_OPEN_AS_IT_IS);
    left.done = true;
  } catch (const ApiError& error) {
    left.done = error.permanent;
    why_not = error.message;
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  const bool told = ++left.tries == kTries;  // it is tried on, once a minute
  left.due = steady_clock::now() + pause_after(std::min(left.tries, kTries));
  if (sandbox.used == steady_clock::time_point{}) sandbox.used = steady_clock::now();
  if (!why_not.empty() && (left.done || told)) {
    sandbox.open_in.reset();
    log::warn("sandbox_not_taken_up", {{"sandbox_id", sandbox.row.sandbox_id}, {"reason", why_not}});
  }
}

void Sandboxes::let_go_of_removed() {
  for (const auto& [id, sandbox] : sandboxes_)
    if (sandbox->open_in && !backends_.find(sandbox->row.backend))
      sandbox->open_in = sandbox->open_in->shared_from_this();  // known, and no longer held
}

}  // namespace isogate::front
