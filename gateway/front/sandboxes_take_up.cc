// What the hosts of an earlier front, or the host before a reload, left running.
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
constexpr seconds kLook{1};

seconds pause_after(int tries) { return seconds(1 << tries); }

using Ids = std::unordered_set<std::string>;

struct Enumeration {
  Enumeration(const asio::any_io_executor& executor, Fd end) : pipe(executor, end.release()), done(executor) {
    pipe.native_non_blocking(true);
  }
  asio::posix::stream_descriptor pipe;
  ipc::Reply reply;
  Event done;
};

asio::awaitable<void> ask(std::shared_ptr<Enumeration> state, std::shared_ptr<BackendChannel> channel,
                          Fd out) {
  ipc::EnumerateCall call;
  call.call.request_id = "take-up";
  call.out = std::move(out);
  state->reply = co_await channel->call(std::move(call));
  boost::system::error_code ignored;
  if (state->reply.status != ISOGATE_OK) state->pipe.close(ignored);  // its other end may stay open
  state->done.set();
}

// Until the pipe ends. False: what came is no listing.
asio::awaitable<bool> read_ids(asio::posix::stream_descriptor& pipe, Ids& running) {
  std::string buffer, chunk(16384, '\0');
  bool sound = true;
  for (;;) {
    boost::system::error_code error;
    const size_t n =
        co_await pipe.async_read_some(asio::buffer(chunk), asio::redirect_error(asio::use_awaitable, error));
    if (error || n == 0) co_return sound;
    if (!sound) continue;
    buffer.append(chunk, 0, n);
    std::string_view rest = buffer;
    for (;;) {
      auto item = ipc::take_found(rest);
      sound = item.ok();
      if (!item || !*item) break;
      if (((*item)->flags & ISOGATE_SANDBOX_RUNS) != 0) running.insert(std::move((*item)->sandbox_id));
    }
    buffer.erase(0, buffer.size() - rest.size());
  }
}

// The ids of what runs; nullopt: it could not be found out.
asio::awaitable<std::optional<Ids>> enumerate(std::shared_ptr<BackendChannel> channel) {
  auto ends = make_pipe();
  if (!ends) co_return std::nullopt;
  const auto state = std::make_shared<Enumeration>(channel->executor(), std::move(ends->read));
  asio::co_spawn(channel->executor(), ask(state, channel, std::move(ends->write)), asio::detached);
  Ids running;
  const bool sound = co_await read_ids(state->pipe, running);
  co_await state->done.wait();
  if (sound && state->reply.status == ISOGATE_OK) co_return running;
  log::warn("sandboxes_not_enumerated", {{"reason", sound ? state->reply.message : "a malformed listing"}});
  co_return std::nullopt;
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
      if (!left) left = co_await look_what_runs(*backend);
      if (!left) tries = std::min(tries + 1, kTries);
      if (left) co_await take_up_due(backend, *left);
    }
    if (left && left->empty()) co_return;
    pause.expires_after(left ? kLook : pause_after(tries));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<std::optional<std::vector<Sandboxes::Left>>> Sandboxes::look_what_runs(
    const Backend& backend) {
  const auto channel = backend.channel;
  const auto running = co_await enumerate(channel);
  if (!running) co_return std::nullopt;
  std::vector<Left> left;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!sandbox->known || sandbox->row.backend != backend.config.name || sandbox->open_in == channel)
      continue;
    if (running->contains(id) || (sandbox->runs && sandbox->open_in)) left.push_back({.sandbox = sandbox});
  }
  for (const std::string& id : *running)
    if (!sandboxes_.contains(id))
      log::warn("sandbox_runs_unknown", {{"backend", backend.config.name}, {"sandbox_id", id}});
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
  left.done = !sandbox.known || sandbox.open_in == backend.channel;
  if (left.done) co_return;
  sandbox.changing = true;
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
  give_back(sandbox);
}

void Sandboxes::let_go_of_removed() {
  for (const auto& [id, sandbox] : sandboxes_)
    if (sandbox->open_in && !backends_.find(sandbox->row.backend))
      sandbox->open_in = sandbox->open_in->shared_from_this();  // known, and no longer held
}

}  // namespace isogate::front
