#include "gateway/front/sandboxes/sandbox_upkeep.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <utility>

#include "gateway/front/base/alarm.h"
#include "gateway/front/base/own_fd.h"
#include "gateway/front/sandboxes/enumeration.h"
#include "gateway/ipc/codec.h"
#include "lib/log.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr size_t kIdleAtOnce = 4;        // per backend, whose host has work for calls meanwhile
constexpr size_t kReattachedAtOnce = 8;  // less than what a host keeps beside execs and file calls
constexpr int kTries = 6;
constexpr size_t kMoreThanKnown = 1 << 16;  // that a backend may list
constexpr size_t kUnknownListed = 16;
constexpr seconds kLook{1};

seconds pause_after(int tries) { return seconds(1 << tries); }

// How it failed; none: it did not.
asio::awaitable<std::optional<ApiError>> failure_of(asio::awaitable<void> change) {
  try {
    co_await std::move(change);
  } catch (const ApiError& error) {
    co_return error;
  } catch (const std::exception& error) {
    co_return ApiError{.message = error.what()};
  }
  co_return std::nullopt;
}

// `act` for each number below `count`, a few at a time; it does not throw. Returns when all are done.
asio::awaitable<void> act_on_each(asio::any_io_executor executor, size_t count, size_t at_once,
                                  std::function<asio::awaitable<void>(size_t)> act) {
  const size_t workers = std::min(at_once, count);
  size_t next = 0, working = workers;
  Event end(executor);
  const auto work = [&]() -> asio::awaitable<void> {
    while (next < count) co_await act(next++);
    if (--working == 0) end.set();
  };
  for (size_t i = 0; i < workers; ++i) asio::co_spawn(executor, work(), asio::detached);
  if (workers > 0) co_await end.wait();
}

// A close would wait for the call that hangs, and may cost all others their host.
bool hangs(Sandbox& sandbox, const BackendChannel& in) {
  const bool hangs = in.hangs(sandbox.row.sandbox_id);
  if (!std::exchange(sandbox.hangs, hangs) && hangs)
    log::warn("sandbox_not_stopped",
              {{"sandbox_id", sandbox.row.sandbox_id},
               {"reason", "a cancelled call of it does not end, and a stop would wait for it"}});
  return hangs;
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
  OnBehalf whose(sandbox.row.tenant, nullptr);
  const ipc::Reply reply = co_await channel->call(std::move(call), nullptr, std::move(whose));
  co_return reply.status == ISOGATE_OK&& bytes_in(pipe.native_handle()) == 0u;
}

}  // namespace

// What a new host finds of those before it.
struct SandboxUpkeep::Reattachment {
  struct Left {
    SandboxPtr sandbox;
    int tries = 0;
    steady_clock::time_point due;
    bool done = false;
  };

  SandboxUpkeep& owner;
  const std::shared_ptr<Backend> backend;
  const std::shared_ptr<BackendChannel> channel = backend->channel;
  const std::string& name = backend->config.name;
  std::optional<std::vector<Left>> left;  // of what runs; none: not known yet

  asio::awaitable<void> run() {
    for (int tries = 0; backend->channel == channel;) {
      if (backend->serves()) {
        const auto at_work = owner.at_work_;
        if (!left) co_await end_left_over();
        if (!left) co_await look_what_runs();
        if (!left) tries = std::min(tries + 1, kTries);
        if (left) co_await reattach_due();
        if (left && backend->channel == channel) backend->offered = channel->identity().generation;
      }
      if (left && left->empty()) co_return;
      const seconds pause = left ? kLook : pause_after(tries);
      co_await sleep_for(owner.executor_, pause);
    }
  }

  // What a crash left between its intent and its acceptance, or in the middle of its close.
  asio::awaitable<void> end_left_over() {
    std::vector<SandboxPtr> due;
    for (const auto& [id, sandbox] : owner.records_.all()) {
      if (!sandbox->left_over || sandbox->row.backend != name) continue;
      sandbox->left_over = false;  // tried once: what ends its host would end it again and again
      due.push_back(sandbox);
    }
    for (const auto& sandbox : due) {
      const std::string& id = sandbox->row.sandbox_id;
      if (owner.records_.known(id) != sandbox) continue;  // its agent may have ended it and begun another
      const bool half_made = !sandbox->row.was_accepted() && !sandbox->has_host() && sandbox->calls == 0;
      if (!backend->channel || sandbox->changing || (!sandbox->closing && !half_made)) continue;
      const auto failure = co_await failure_of(end_left_over(sandbox));
      if (failure) {
        log::warn("sandbox_not_ended", {{"sandbox_id", id}, {"reason", failure->message}});
        continue;
      }
      log::info("sandbox_left_over_ended", {{"sandbox_id", id}});
      if (!sandbox->known || sandbox->row.was_accepted()) continue;
      owner.records_.remove_record(*sandbox);
      owner.records_.forget_if_unknown(id);
    }
  }

  // Nothing of a tenant ran in what was never accepted: what holds no file is removed, the rest is stopped
  // and found again by who calls.
  asio::awaitable<void> end_left_over(SandboxPtr sandbox) {
    const std::string request_id = "clean-up";
    if (!sandbox->closing) {
      const Change changing(sandbox);
      const isogate_status found = co_await owner.changes_.attach_to_close(*sandbox, *backend, request_id);
      const bool empty = found != ISOGATE_OK || co_await has_no_files(*sandbox, sandbox->open_in);
      sandbox->closing = empty ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
    }
    co_await owner.changes_.finish_closing(sandbox, request_id);
  }

  asio::awaitable<void> look_what_runs() {
    std::function<ipc::Call(Fd)> ask = [](Fd out) {
      ipc::EnumerateCall call;
      call.call.request_id = "re-attach";
      call.out = std::move(out);
      return ipc::Call(std::move(call));
    };
    std::unordered_set<std::string> running;  // ids
    size_t unknown = 0;
    std::function<void(ipc::Found)> take = [&](ipc::Found found) {
      if ((found.flags & ISOGATE_SANDBOX_RUNS) == 0) return;
      if (!owner.records_.find(found.sandbox_id) && ++unknown > kUnknownListed) return;
      running.insert(std::move(found.sandbox_id));
    };
    // The limit may have been lowered since, and then there are more.
    const size_t expected = std::max(owner.records_.most(), owner.records_.all().size());
    const size_t most = expected + std::min(SIZE_MAX - expected, kMoreThanKnown);
    const Result<void> listed = co_await enumerate(channel, std::move(ask), most, std::move(take));
    backend->not_listed = !listed;
    if (!listed) {
      log::warn("sandboxes_not_enumerated", {{"backend", name}, {"reason", listed.error().message}});
      co_return;
    }
    left.emplace();
    for (const auto& [id, sandbox] : owner.records_.all()) {
      if (!sandbox->known || !sandbox->row.was_accepted() || sandbox->closing) continue;
      if (sandbox->row.backend != name || sandbox->open_in == channel) continue;
      if (!running.contains(id) && !sandbox->runs) continue;
      sandbox->runs = true;
      left->push_back({.sandbox = sandbox});
    }
    for (const std::string& id : running)
      if (!owner.records_.find(id))
        log::warn("sandbox_runs_unknown", {{"backend", name}, {"sandbox_id", id}});
    if (unknown > kUnknownListed) log::warn("sandboxes_run_unknown", {{"backend", name}, {"count", unknown}});
    if (!left->empty()) log::info("sandboxes_run_already", {{"backend", name}, {"count", left->size()}});
  }

  [[nodiscard]] bool may_reattach(const Sandbox& sandbox) const {
    return backend->channel && !owner.ending_ && !sandbox.changing && !sandbox.busy_before(*backend->channel);
  }

  asio::awaitable<void> reattach_due() {
    std::vector<Left*> due;
    for (const Left& each : *left) cut_lasting_ports(*each.sandbox);
    for (Left& each : *left)
      if (may_reattach(*each.sandbox) && each.due <= steady_clock::now()) due.push_back(&each);
    std::function<asio::awaitable<void>(size_t)> act = [&](size_t i) { return reattach_one(*due[i]); };
    co_await act_on_each(owner.executor_, due.size(), kReattachedAtOnce, std::move(act));
    std::erase_if(*left, [](const Left& each) { return each.done; });
  }

  // Where nothing but connections to ports keeps it in the host before.
  void cut_lasting_ports(const Sandbox& sandbox) const {
    if (backend->channel && sandbox.busy_before(*backend->channel) && sandbox.calls == sandbox.ports.size())
      sandbox.cut_ports("the sandbox's backend is replaced", true);
  }

  // A call that comes meanwhile waits, and opens it itself if need be.
  asio::awaitable<void> reattach_one(Left& one) {
    Sandbox& sandbox = *one.sandbox;
    if (!may_reattach(sandbox)) co_return;
    one.done = !sandbox.known || sandbox.closing || sandbox.open_in == backend->channel;
    if (one.done) co_return;
    const Change changing(one.sandbox);
    const Wanted wanted{
        .tenant = sandbox.row.tenant, .agent = sandbox.row.agent_id, .request_id = "re-attach"};
    const auto failure =
        co_await failure_of(owner.changes_.open(sandbox, *backend, wanted, ISOGATE_OPEN_RUNNING_ONLY));
    one.done = !failure || failure->permanent;
    const bool warn = ++one.tries == kTries;  // it is tried on, once a minute
    one.due = steady_clock::now() + pause_after(std::min(one.tries, kTries));
    if (sandbox.used == steady_clock::time_point{}) sandbox.used = steady_clock::now();
    if (failure && one.done) sandbox.gone();
    if (failure && (one.done || warn)) {
      sandbox.open_in.reset();
      log::warn("sandbox_not_reattached",
                {{"sandbox_id", sandbox.row.sandbox_id}, {"reason", failure->message}});
    }
  }
};

asio::awaitable<void> SandboxUpkeep::reattach(std::shared_ptr<Backend> backend) {
  Reattachment reattachment{*this, std::move(backend)};
  co_await reattachment.run();
}

bool SandboxUpkeep::reattaching() const {
  if (at_work_.use_count() > 1) return true;
  if (ending_) return false;
  const auto& all = records_.all();
  return std::any_of(all.begin(), all.end(), [this](const auto& each) {
    const Sandbox& sandbox = *each.second;
    const bool attaches = sandbox.row.was_accepted() && !sandbox.closing;
    if (!sandbox.known || (!attaches && !sandbox.left_over) || sandbox.has_host()) return false;
    const auto backend = backends_.find(sandbox.row.backend);
    if (!backend || !backend->may_serve()) return false;
    const bool offered = backend->channel && backend->offered == backend->generation;
    return !offered || (attaches && sandbox.runs);
  });
}

std::vector<std::string> SandboxUpkeep::without_host() const {
  std::vector<std::string> ids;
  for (const auto& [id, sandbox] : records_.all()) {
    const auto backend = backends_.find(sandbox->row.backend);
    if (!sandbox->known || sandbox->has_host() || !backend) continue;
    if (sandbox->runs || backend->not_listed) ids.push_back(id);
  }
  return ids;
}

void SandboxUpkeep::release_removed() {
  for (const auto& [id, sandbox] : records_.all())
    if (sandbox->open_in && !backends_.find(sandbox->row.backend))
      sandbox->open_in = sandbox->open_in->shared_from_this();  // known, and no longer held
}

asio::awaitable<void> SandboxUpkeep::stop_idle(std::function<seconds()> limit) {
  for (;;) {
    co_await sleep_for(executor_, std::clamp(limit() / 4, seconds(1), seconds(30)));
    if (limit() == seconds(0)) continue;
    // By backend: an Engine that is slow holds up its own sandboxes only.
    std::unordered_map<std::string, std::vector<SandboxPtr>> idle;
    for (const auto& [id, sandbox] : records_.all()) {
      const auto in = sandbox->may_be_in();
      const bool open = sandbox->known && in && !sandbox->changing;
      const auto unused = steady_clock::now() - sandbox->used;
      if (!open || sandbox->calls != 0 || unused < limit()) continue;
      // A durable write may take its time: no host is replaced for it, and a close would only wait.
      const bool at_fault = in->hangs(id, true);
      if (hangs(*sandbox, *in) && (!at_fault || unused < 2 * limit())) continue;
      if (!stopping_idle_.contains(sandbox->row.backend)) idle[sandbox->row.backend].push_back(sandbox);
    }
    for (auto& [backend, sandboxes] : idle) {
      stopping_idle_.insert(backend);
      const size_t count = sandboxes.size();
      std::function<asio::awaitable<void>(size_t)> act = [this, all = std::move(sandboxes),
                                                          limit = limit()](size_t i) {
        return stop_if_idle(all[i], limit);
      };
      asio::co_spawn(executor_, act_on_each(executor_, count, kIdleAtOnce, std::move(act)),
                     [this, name = backend](const std::exception_ptr&) { stopping_idle_.erase(name); });
    }
  }
}

// What cannot be stopped now is tried again at the next tick.
asio::awaitable<void> SandboxUpkeep::stop_if_idle(SandboxPtr sandbox, seconds limit) {
  const auto backend = backends_.find(sandbox->row.backend);
  if (!backend || !backend->channel || sandbox->changing || sandbox->calls != 0) co_return;
  if (sandbox->may_be_in() != backend->channel || steady_clock::now() - sandbox->used < limit) co_return;
  std::optional<ApiError> failure;
  if (sandbox->closing) {
    failure = co_await failure_of(changes_.finish_closing(sandbox, "idle"));
  } else {
    const Change changing(sandbox);  // whoever calls meanwhile waits, and opens it again
    failure = co_await failure_of(changes_.close(*sandbox, *backend, ISOGATE_CLOSE_STOP, "idle"));
  }
  if (failure) {
    sandbox->left_over = true;
    log::warn("sandbox_not_stopped", {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", failure->message}});
    co_return;
  }
  log::info("sandbox_stopped_idle", {{"sandbox_id", sandbox->row.sandbox_id},
                                     {"tenant", sandbox->row.tenant},
                                     {"agent_id", sandbox->row.agent_id},
                                     {"limit_sec", limit.count()}});
}

}  // namespace isogate::front
