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

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

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
    request.open = backend && backend->channel && sandbox.open_on == backend->channel->generation();
    request.pinned = sandbox.row.backend;
    request.pinned_isolation = sandbox.row.isolation;
  }
  return backends_.decide(request);
}

asio::awaitable<Lease> Sandboxes::acquire(const Wanted& wanted) {
  co_await backends_.settled(std::chrono::seconds(20));
  const std::string id = sandbox_id(instance_, wanted.tenant, wanted.agent);
  for (;;) {
    const auto sandbox = find_or_make(id, wanted);
    if (sandbox->changing) {  // and may be another one afterwards
      co_await take(*sandbox);
      give_back(*sandbox);
      continue;
    }
    const Decision decision = decide(*sandbox, wanted);
    if (!decision.chosen) {
      forget_if_unknown(id);
      throw refusal_of(decision);
    }
    const auto backend = backends_.find(*decision.chosen);
    const auto channel = backend->channel;
    if (!channel) {
      forget_if_unknown(id);
      throw ApiError{.code = Code::kBackendUnavailable,
                     .message = "backend `" + *decision.chosen + "` is restarting",
                     .retry_after_sec = 1};
    }
    if (sandbox->open_on == channel->generation() && sandbox->known)
      co_return Lease(sandbox, backend, channel);
    sandbox->changing = true;
    std::exception_ptr failure;
    try {
      co_await open(*sandbox, *backend, *channel, wanted, false);
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

asio::awaitable<void> Sandboxes::open(Sandbox& sandbox, Backend& backend, BackendChannel& channel,
                                      const Wanted& wanted, bool attach_only) {
  if (const auto error = state_.last_error()) {
    throw ApiError{
        .code = Code::kQuotaExceeded,
        .message = "no sandbox is opened while the state store cannot be written: " + error->message};
  }
  ipc::OpenCall call;
  call.call.request_id = wanted.request_id;
  call.flags = (attach_only ? ISOGATE_OPEN_ATTACH_ONLY : 0u) | (sandbox.known ? ISOGATE_OPEN_KNOWN : 0u) |
               (backend.config.limits_best_effort ? ISOGATE_OPEN_LIMITS_BEST_EFFORT : 0u);
  call.egress = backend.config.egress;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.tenant = sandbox.row.tenant;
  call.agent_id = sandbox.row.agent_id;
  call.handle = sandbox.row.handle;
  call.limits = backend.config.sandbox_limits;
  const auto ticket = backend.gate.enter(wanted.tenant);
  backend.breakers.started(wanted.tenant, std::chrono::steady_clock::now());
  const ipc::Reply reply = co_await channel.call(std::move(call));
  backends_.judge(backend, sandbox.row, reply);
  if (reply.status == ISOGATE_SANDBOX_LOST) sandbox.row.state = SandboxRow::State::kLost;
  if (reply.status != ISOGATE_OK) {
    ApiError error = from_backend({reply.status, reply.os_errno, reply.message});
    if (reply.status == ISOGATE_LOST)
      error.code = Code::kBackendUnavailable;  // nothing of the tenant's had started
    throw error;
  }
  const auto& opened = std::get<ipc::Opened>(reply.value);
  co_await check_evidence(sandbox, backend, channel, opened, wanted.request_id);
  const bool changed = !sandbox.known || sandbox.row.backend != backend.config.name ||
                       sandbox.row.handle != opened.handle || sandbox.row.isolation != opened.isolation ||
                       sandbox.row.uid != opened.uid || sandbox.row.state != SandboxRow::State::kActive;
  sandbox.row.backend = backend.config.name;
  sandbox.row.handle = opened.handle;
  sandbox.row.isolation = opened.isolation;
  sandbox.row.uid = opened.uid;
  sandbox.row.state = SandboxRow::State::kActive;
  sandbox.row.last_used_ms = now_ms();
  if (sandbox.row.created_ms == 0) sandbox.row.created_ms = sandbox.row.last_used_ms;
  if (changed) co_await commit(sandbox);
  sandbox.known = true;
  sandbox.open_on = channel.generation();
  log::info("sandbox_opened", {{"sandbox_id", sandbox.row.sandbox_id},
                               {"tenant", sandbox.row.tenant},
                               {"agent_id", sandbox.row.agent_id},
                               {"backend", backend.config.name},
                               {"isolation", isolation_name(opened.isolation)},
                               {"attached", (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0}});
}

// A mismatch closes the sandbox. What was opened before may hold a tenant's programs: it is not measured
// again.
asio::awaitable<void> Sandboxes::check_evidence(Sandbox& sandbox, Backend& backend, BackendChannel& channel,
                                                const ipc::Opened& opened, const std::string& request_id) {
  const uint64_t capabilities = backend.probe ? backend.probe->capabilities : 0;
  if (sandbox.known && (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0 &&
      opened.isolation == sandbox.row.isolation)
    co_return;
  isogate_evidence evidence{};
  std::string why_not;
  if ((capabilities & ISOGATE_CAP_EVIDENCE) != 0) {
    ipc::EvidenceCall call;
    call.call.request_id = request_id;
    call.sandbox_id = sandbox.row.sandbox_id;
    call.gateway_address = gateway_address_;
    call.gateway_port = gateway_port_;
    const ipc::Reply reply = co_await channel.call(std::move(call));
    if (reply.status == ISOGATE_OK)
      evidence = std::get<isogate_evidence>(reply.value);
    else
      why_not = ": " + reply.message;
  }
  const Claim claim{.isolation = opened.isolation,
                    .locality = backend.probe ? backend.probe->locality : 0,
                    .capabilities = capabilities,
                    .uid = opened.uid,
                    .egress = backend.config.egress,
                    .limits = backend.config.sandbox_limits,
                    .limits_best_effort = backend.config.limits_best_effort,
                    .started_by_root = started_by_root_};
  auto mismatch = evidence_mismatch(evidence, claim, host_namespaces_);
  if (mismatch) *mismatch += why_not;
  if (!sandbox.known && (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0 &&
      opened.isolation >= ISOGATE_ISOLATION_NAMESPACE) {
    mismatch = "it was there already, but the state store does not know it, so a tenant may have run in it";
  }
  if (!mismatch) co_return;
  log::error(
      "evidence_mismatch",
      {{"sandbox_id", sandbox.row.sandbox_id}, {"backend", backend.config.name}, {"mismatch", *mismatch}});
  ipc::CloseCall close;
  close.call.request_id = request_id;
  close.sandbox_id = sandbox.row.sandbox_id;
  // One that was made just now, for nobody yet, leaves nothing.
  const bool fresh = !sandbox.known && (opened.flags & ISOGATE_SANDBOX_ATTACHED) == 0;
  close.mode = fresh ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
  co_await channel.call(std::move(close));
  throw ApiError{.code = Code::kBackendUnavailable,
                 .message = "the sandbox was closed: what was measured inside is not what backend `" +
                            backend.config.name + "` claims: " + *mismatch};
}

// Waits until the pin is on disk: an exec answers only after that.
asio::awaitable<void> Sandboxes::commit(const Sandbox& sandbox) {
  const auto done = std::make_shared<Event>(executor_);
  const auto outcome = std::make_shared<std::optional<Error>>();
  state_.put_sandbox(sandbox.row, [executor = executor_, done, outcome](Result<void> result) {
    if (!result) *outcome = result.error();
    asio::post(executor, [done] { done->set(); });
  });
  co_await done->wait();
  if (*outcome)
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "the sandbox cannot be recorded: " + (*outcome)->message};
}

void Sandboxes::lost(Sandbox& sandbox, isogate_status status) {
  sandbox.open_on = 0;
  if (status == ISOGATE_SANDBOX_LOST) sandbox.row.state = SandboxRow::State::kLost;
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
    if (!backend->channel) {
      throw ApiError{
          .code = Code::kBackendUnavailable,
          .message = "backend `" + sandbox->row.backend + "`, which holds this sandbox, is not running",
          .retry_after_sec = 5};
    }
    const auto channel = backend->channel;
    co_await wait_for_calls(*sandbox);
    const Wanted wanted{.tenant = tenant, .agent = agent, .request_id = request_id};
    // Its host may have it open still, and then opens it again without a look.
    const bool was_lost = sandbox->row.state == SandboxRow::State::kLost;
    bool gone = false;
    if (sandbox->open_on != channel->generation()) {
      try {
        co_await open(*sandbox, *backend, *channel, wanted, true);
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
      const ipc::Reply reply = co_await channel->call(std::move(call));
      if (reply.status != ISOGATE_OK && reply.status != ISOGATE_NO_SANDBOX)
        throw from_backend({reply.status, reply.os_errno, reply.message});
    }
    sandbox->open_on = 0;
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
