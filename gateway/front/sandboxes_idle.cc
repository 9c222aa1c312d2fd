#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

#include "gateway/base/log.h"
#include "gateway/front/sandboxes.h"

namespace isogate::front {
namespace asio = boost::asio;
using std::chrono::seconds;
using std::chrono::steady_clock;

asio::awaitable<void> Sandboxes::stop_idle(std::function<seconds()> limit) {
  asio::steady_timer timer(executor_);
  for (;;) {
    timer.expires_after(std::clamp(limit() / 4, seconds(1), seconds(30)));
    co_await timer.async_wait(asio::use_awaitable);
    if (limit() == seconds(0)) continue;
    std::vector<std::shared_ptr<Sandbox>> idle;
    for (const auto& [id, sandbox] : sandboxes_) {
      const bool open = sandbox->known && sandbox->open_in && !sandbox->changing;
      if (open && sandbox->calls == 0 && steady_clock::now() - sandbox->used >= limit())
        idle.push_back(sandbox);
    }
    for (const auto& sandbox : idle) co_await stop_if_idle(sandbox, limit());
  }
}

// What cannot be stopped now is tried again at the next tick.
asio::awaitable<void> Sandboxes::stop_if_idle(std::shared_ptr<Sandbox> sandbox, seconds limit) {
  const auto backend = backends_.find(sandbox->row.backend);
  if (!backend || !backend->channel || sandbox->changing || sandbox->calls != 0) co_return;
  const auto channel = backend->channel;
  if (sandbox->open_in != channel) co_return;
  if (steady_clock::now() - sandbox->used < limit) co_return;
  sandbox->changing = true;  // whoever calls meanwhile waits, and opens it again
  ipc::CloseCall call;
  call.call.request_id = "idle";
  call.sandbox_id = sandbox->row.sandbox_id;
  call.mode = ISOGATE_CLOSE_STOP;
  const ipc::Reply reply = co_await channel->call(std::move(call));
  const bool stopped = reply.status == ISOGATE_OK || reply.status == ISOGATE_NO_SANDBOX;
  if (stopped) sandbox->open_in.reset();
  if (stopped) {
    log::info("sandbox_stopped_idle", {{"sandbox_id", sandbox->row.sandbox_id},
                                       {"tenant", sandbox->row.tenant},
                                       {"agent_id", sandbox->row.agent_id},
                                       {"limit_sec", limit.count()}});
  } else {
    log::warn("sandbox_not_stopped", {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", reply.message}});
  }
  give_back(*sandbox);
}

}  // namespace isogate::front
