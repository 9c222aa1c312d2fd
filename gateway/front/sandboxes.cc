#include "gateway/front/sandboxes.h"

#include <sys/random.h>

#include <boost/asio/post.hpp>
#include <chrono>

#include "gateway/base/log.h"
#include "gateway/front/names.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr std::chrono::seconds kCallsEndWithin{Cancel::kLetGo + std::chrono::seconds(1)},
    kAnswersEndWithin{1};

std::string verdicts_json(const Decision& decision) {
  std::string out = R"({"tried":[)";
  for (const auto& verdict : decision.verdicts) {
    if (out.back() == '}') out += ',';
    out += R"({"backend":)";
    append_json_string(out, verdict.name);
    out += R"(,"reason":)";
    append_json_string(out, verdict.eligible ? "eligible" : verdict.reason);
    out += '}';
  }
  return out + "]}";
}

ApiError still_busy() {
  return {.code = Code::kBackendUnavailable,
          .message =
              "the settings of this sandbox have changed, and calls that began before still run in it: "
              "when they have ended it is opened anew",
          .retry_after_sec = 5};
}

}  // namespace

ApiError refusal_of(const Decision& decision) {
  Code code = Code::kBackendUnavailable;
  if (decision.refusal == Refusal::kNoSuchBackend || decision.refusal == Refusal::kElsewhere)
    code = Code::kInvalidRequest;
  if (decision.refusal == Refusal::kUnsupported) code = Code::kUnsupported;
  ApiError error{.code = code, .message = decision.message, .details_json = verdicts_json(decision)};
  error.permanent = decision.refusal == Refusal::kPolicy;
  if (code == Code::kBackendUnavailable && !error.permanent) error.retry_after_sec = 5;
  return error;
}

ApiError is_restarting(const std::string& backend) {
  return {.code = Code::kBackendUnavailable,
          .message = "backend `" + backend + "` is restarting",
          .retry_after_sec = 1};
}

std::shared_ptr<BackendChannel> busy_before(const Sandbox& sandbox, const BackendChannel& now) {
  const auto& before = sandbox.open_in;
  const bool busy =
      sandbox.runs && sandbox.calls > 0 && before && before.get() != &now && before->connected();
  return busy ? before : nullptr;
}

Sandboxes::Sandboxes(asio::any_io_executor executor, Backends& backends, State& state, std::string instance,
                     bool started_by_root)
    : executor_(std::move(executor)),
      backends_(backends),
      state_(state),
      instance_(std::move(instance)),
      started_by_root_(started_by_root) {}

Result<void> Sandboxes::load() {
  auto namespaces = own_namespaces();
  if (!namespaces) return namespaces.error();
  host_namespaces_ = *namespaces;
  auto rows = state_.load_sandboxes();
  if (!rows) return rows.error();
  for (SandboxRow& row : *rows) {
    auto sandbox = std::make_shared<Sandbox>();
    sandbox->row = std::move(row);
    sandbox->known = true;
    ++per_tenant_[sandbox->row.tenant];
    sandboxes_.emplace(sandbox->row.sandbox_id, std::move(sandbox));
  }
  return {};
}

asio::awaitable<void> Sandboxes::take(Sandbox& sandbox) {
  while (sandbox.changing) {
    const auto turn = std::make_shared<Event>(executor_);
    sandbox.waiters.push_back(turn);
    co_await turn->wait();
  }
  sandbox.changing = true;
}

void Sandboxes::give_back(Sandbox& sandbox) {
  sandbox.changing = false;
  for (auto& waiter : std::exchange(sandbox.waiters, {})) waiter->set();
}

Decision Sandboxes::decide(const Sandbox& sandbox, const Wanted& wanted) const {
  SelectRequest request{.tenant = wanted.tenant,
                        .backend = wanted.backend,
                        .min_isolation = wanted.min_isolation,
                        .capabilities = wanted.capabilities};
  if (sandbox.known) {
    const auto backend = backends_.find(sandbox.row.backend);
    request.open = backend && backend->channel &&
                   (sandbox.open_in == backend->channel || busy_before(sandbox, *backend->channel));
    request.pinned = sandbox.row.backend;
    request.pinned_isolation = sandbox.row.isolation;
  }
  return backends_.decide(request);
}

asio::awaitable<Lease> Sandboxes::acquire(const Wanted& wanted) {
  const std::string id = sandbox_id(instance_, wanted.tenant, wanted.agent);
  for (;;) {
    co_await settled_for(id, wanted);
    const auto sandbox = find_or_make(id, wanted);
    if (sandbox->changing) {  // and may be another one afterwards
      co_await take(*sandbox);
      give_back(*sandbox);
      continue;
    }
    const Decision decision = decide(*sandbox, wanted);
    const auto backend = decision.chosen ? backends_.find(*decision.chosen) : nullptr;
    if (!backend || !backend->channel || !backend->settled) {
      forget_if_unknown(id);
      throw backend ? is_restarting(*decision.chosen) : refusal_of(decision);
    }
    const auto channel = backend->channel;
    if (sandbox->open_in == channel && sandbox->known) co_return Lease(sandbox, backend, channel);
    if (const auto before = busy_before(*sandbox, *channel)) {
      if (before->identity().settings != channel->identity().settings) throw still_busy();
      co_return Lease(sandbox, backend, before);
    }
    sandbox->changing = true;
    std::exception_ptr failure;
    try {
      co_await open(*sandbox, *backend, wanted, 0);
    } catch (...) {
      failure = std::current_exception();
    }
    give_back(*sandbox);
    if (failure) {
      forget_if_unknown(id);
      std::rethrow_exception(failure);
    }
  }
}

// Only the backends that this call may come to.
asio::awaitable<void> Sandboxes::settled_for(const std::string& id, const Wanted& wanted) {
  const auto found = sandboxes_.find(id);
  const bool pinned = found != sandboxes_.end() && found->second->known;
  const std::string only = pinned ? found->second->row.backend : wanted.backend.value_or("");
  co_await backends_.settled(std::chrono::seconds(20), only);
}

std::shared_ptr<Sandbox> Sandboxes::find_or_make(const std::string& id, const Wanted& wanted) {
  if (const auto found = sandboxes_.find(id); found != sandboxes_.end()) return found->second;
  const auto own = per_tenant_.find(wanted.tenant);
  const bool all_taken = sandboxes_.size() >= most_;
  if (all_taken || (own != per_tenant_.end() && own->second >= most_per_tenant_)) {
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = all_taken ? "there are " + std::to_string(most_) + " sandboxes (max_sandboxes)"
                                        : "there are " + std::to_string(most_per_tenant_) +
                                              " sandboxes of this tenant (max_sandboxes_per_tenant); end some"
                                              " with DELETE /sandboxes/{agent_id}?purge=true"};
  }
  const auto sandbox = std::make_shared<Sandbox>();
  sandbox->row.sandbox_id = id;
  sandbox->row.tenant = wanted.tenant;
  sandbox->row.agent_id = wanted.agent;
  ++per_tenant_[wanted.tenant];
  sandboxes_.emplace(id, sandbox);
  return sandbox;
}

void Sandboxes::forget(const std::string& id) {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return;
  const auto own = per_tenant_.find(found->second->row.tenant);
  if (own != per_tenant_.end() && --own->second == 0) per_tenant_.erase(own);
  sandboxes_.erase(found);
}

void Sandboxes::forget_if_unknown(const std::string& id) {
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end()) return;
  const Sandbox& sandbox = *found->second;
  if (!sandbox.known && sandbox.calls == 0 && !sandbox.changing) forget(id);
}

void Sandboxes::lost(const Lease& lease, isogate_status status) {
  Sandbox& sandbox = *lease.sandbox;
  if (status == ISOGATE_SANDBOX_LOST) sandbox.row.state = SandboxRow::State::kLost;
  if (sandbox.open_in != lease.channel) return;  // it has been opened since, elsewhere
  sandbox.open_in.reset();
}

asio::awaitable<void> Sandboxes::wait_for_calls(Sandbox& sandbox) {
  asio::steady_timer pause(executor_);
  const auto begun = std::chrono::steady_clock::now();
  while (sandbox.calls > 0 && std::chrono::steady_clock::now() < begun + kCallsEndWithin) {
    // What is left are answers on their way to slow clients: the backend itself is done with them.
    if (sandbox.kills.empty() && std::chrono::steady_clock::now() > begun + kAnswersEndWithin) break;
    const auto kills = sandbox.kills;
    for (auto* kill : kills) (*kill)();
    pause.expires_after(std::chrono::milliseconds(2));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

asio::awaitable<void> Sandboxes::end(const std::string& tenant, const std::string& agent, bool purge,
                                     std::string request_id) {
  const std::string id = sandbox_id(instance_, tenant, agent);
  const auto found = sandboxes_.find(id);
  if (found == sandboxes_.end() || !found->second->known) {
    throw ApiError{.code = Code::kSandboxNotFound,
                   .message = "agent `" + printable(agent, 70) + "` has no sandbox"};
  }
  const auto sandbox = found->second;
  co_await take(*sandbox);
  if (const auto again = sandboxes_.find(id); again == sandboxes_.end() || again->second != sandbox) {
    give_back(*sandbox);
    throw ApiError{.code = Code::kSandboxNotFound, .message = "the sandbox was ended by another call"};
  }
  std::exception_ptr failure;
  try {
    const auto backend = backends_.find(sandbox->row.backend);
    if (!backend) {
      forget_abandoned(*sandbox, purge);
      give_back(*sandbox);
      co_return;
    }
    co_await backends_.settled(std::chrono::seconds(20), backend->config.name);
    co_await wait_for_calls(*sandbox);
    const bool held_before = sandbox->runs && sandbox->open_in && sandbox->open_in->connected();
    if (!backend->channel && !held_before) {
      throw ApiError{
          .code = Code::kBackendUnavailable,
          .message = "backend `" + sandbox->row.backend + "`, which holds this sandbox, is not running",
          .retry_after_sec = 5};
    }
    const Wanted wanted{.tenant = tenant, .agent = agent, .request_id = request_id};
    // Its host may have it open still, and then opens it again without a look.
    const bool was_lost = sandbox->row.state == SandboxRow::State::kLost;
    bool gone = false;
    const auto& in = sandbox->open_in;
    if (!in || (in != backend->channel && !(sandbox->runs && in->connected()))) {
      try {
        co_await open(*sandbox, *backend, wanted, ISOGATE_OPEN_ATTACH_ONLY);
      } catch (const ApiError&) {
        if (sandbox->row.state != SandboxRow::State::kLost) throw;  // its files would stay, unknown
        gone = true;
      }
    }
    if (!gone) {
      const auto place = backend->gate.enter(tenant);
      ipc::CloseCall call;
      call.call.request_id = request_id;
      call.sandbox_id = id;
      call.mode = purge ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
      const auto channel = sandbox->open_in->hold();
      const ipc::Reply reply = co_await channel->call(std::move(call));
      if (reply.status != ISOGATE_OK && reply.status != ISOGATE_NO_SANDBOX)
        throw from_backend({reply.status, reply.os_errno, reply.message});
    }
    sandbox->open_in.reset();
    if (purge || gone || was_lost) {
      sandbox->known = false;
      state_.remove_sandbox(id, {});
      forget(id);
    }
    log::info("sandbox_ended",
              {{"sandbox_id", id}, {"tenant", tenant}, {"agent_id", agent}, {"purged", purge}});
  } catch (...) {
    failure = std::current_exception();
  }
  give_back(*sandbox);
  if (failure) std::rethrow_exception(failure);
}

// Of a backend that is not configured any more: nobody is left who could close it.
void Sandboxes::forget_abandoned(Sandbox& sandbox, bool purge) {
  if (purge) {
    throw ApiError{
        .code = Code::kBackendUnavailable,
        .message = "only backend `" + sandbox.row.backend +
                   "`, which is no longer configured, can remove this sandbox's files: configure it "
                   "again, or delete without purge to forget the sandbox and leave its files there",
        .permanent = true};
  }
  log::warn("sandbox_forgotten", {{"sandbox_id", sandbox.row.sandbox_id},
                                  {"tenant", sandbox.row.tenant},
                                  {"agent_id", sandbox.row.agent_id},
                                  {"backend", sandbox.row.backend}});
  sandbox.known = false;
  state_.remove_sandbox(sandbox.row.sandbox_id, {});
  forget(std::string(sandbox.row.sandbox_id));
}

std::vector<const Sandbox*> Sandboxes::of(const std::string& tenant) const {
  std::vector<const Sandbox*> out;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (sandbox->known && sandbox->row.tenant == tenant) out.push_back(sandbox.get());
  }
  return out;
}

void Sandboxes::kill_all() {
  for (const auto& [id, sandbox] : sandboxes_) {
    const auto kills = sandbox->kills;
    for (auto* kill : kills) (*kill)();
  }
}

}  // namespace isogate::front
