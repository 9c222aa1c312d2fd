#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/base/log.h"
#include "gateway/front/sandboxes.h"

namespace isogate::front {
namespace asio = boost::asio;
using std::chrono::seconds;
using std::chrono::steady_clock;

namespace {
constexpr size_t kAtOnce = 4;  // per backend, whose host has work for calls meanwhile
}

// What is idle in one backend: an engine that is slow holds up its own sandboxes only.
struct Sandboxes::IdleRound {
  std::vector<std::shared_ptr<Sandbox>> idle;
  size_t next = 0, working = 0;
};

asio::awaitable<void> Sandboxes::stop_idle(std::function<seconds()> limit) {
  asio::steady_timer timer(executor_);
  for (;;) {
    timer.expires_after(std::clamp(limit() / 4, seconds(1), seconds(30)));
    co_await timer.async_wait(asio::use_awaitable);
    if (limit() == seconds(0)) continue;
    std::unordered_map<std::string, std::shared_ptr<IdleRound>> rounds;  // by backend
    for (const auto& [id, sandbox] : sandboxes_) {
      const bool open = sandbox->known && sandbox->open_in && !sandbox->changing;
      if (!open || sandbox->calls != 0 || steady_clock::now() - sandbox->used < limit()) continue;
      if (stopping_idle_.contains(sandbox->row.backend)) continue;  // the round before goes on
      auto& round = rounds[sandbox->row.backend];
      if (!round) round = std::make_shared<IdleRound>();
      round->idle.push_back(sandbox);
    }
    for (const auto& [backend, round] : rounds) {
      stopping_idle_.insert(backend);
      round->working = std::min(kAtOnce, round->idle.size());
      for (size_t i = round->working; i > 0; --i)
        asio::co_spawn(executor_, stop_some_idle(backend, round, limit()), asio::detached);
    }
  }
}

asio::awaitable<void> Sandboxes::stop_some_idle(std::string backend, std::shared_ptr<IdleRound> round,
                                                seconds limit) {
  while (round->next < round->idle.size()) co_await stop_if_idle(round->idle[round->next++], limit);
  if (--round->working == 0) stopping_idle_.erase(backend);
}

// What cannot be stopped now is tried again at the next tick.
asio::awaitable<void> Sandboxes::stop_if_idle(std::shared_ptr<Sandbox> sandbox, seconds limit) {
  const auto backend = backends_.find(sandbox->row.backend);
  if (!backend || !backend->channel || sandbox->changing || sandbox->calls != 0) co_return;
  const auto channel = backend->channel;
  if (sandbox->open_in != channel) co_return;
  if (steady_clock::now() - sandbox->used < limit) co_return;
  const Change changing(sandbox);  // whoever calls meanwhile waits, and opens it again
  std::string why_not;
  try {
    co_await close(*sandbox, *backend, ISOGATE_CLOSE_STOP, "idle");
  } catch (const ApiError& error) {
    why_not = error.message;
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  if (why_not.empty()) {
    log::info("sandbox_stopped_idle", {{"sandbox_id", sandbox->row.sandbox_id},
                                       {"tenant", sandbox->row.tenant},
                                       {"agent_id", sandbox->row.agent_id},
                                       {"limit_sec", limit.count()}});
  } else {
    log::warn("sandbox_not_stopped", {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", why_not}});
  }
}

}  // namespace isogate::front
