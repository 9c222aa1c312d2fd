#include "gateway/front/sandboxes.h"

#include <sys/random.h>

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
    if (sandbox->row.state == SandboxRow::State::kEnding) sandbox->closing = ISOGATE_CLOSE_PURGE;
    sandbox->left_over = !sandbox->row.was_accepted();
    ++per_tenant_[sandbox->row.tenant];
    sandboxes_.emplace(sandbox->row.sandbox_id, std::move(sandbox));
  }
  return {};
}

asio::awaitable<Change> Sandboxes::change(std::shared_ptr<Sandbox> sandbox) {
  while (sandbox->changing) {
    const auto turn = std::make_shared<Event>(executor_);
    sandbox->waiters.push_back(turn);
    co_await turn->wait();
  }
  co_return Change(std::move(sandbox));
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
    if (sandbox.row.was_accepted()) request.pinned_isolation = sandbox.row.isolation;
  }
  return backends_.decide(request);
}

asio::awaitable<Lease> Sandboxes::acquire(const Wanted& wanted) {
  const std::string id = sandbox_id(instance_, wanted.tenant, wanted.agent);
  for (;;) {
    co_await settled_for(id, wanted);
    const auto sandbox = find_or_make(id, wanted);
    if (sandbox->changing) {  // and may be another one afterwards
      (void)co_await change(sandbox);
      continue;
    }
    const Decision decision = decide(*sandbox, wanted);
    const auto backend = decision.chosen ? backends_.find(*decision.chosen) : nullptr;
    if (!backend || !backend->channel || !backend->settled) {
      forget_if_unknown(id);
      throw backend ? is_restarting(*decision.chosen) : refusal_of(decision);
    }
    const auto channel = backend->channel;
    if (sandbox->closing) {
      co_await finish_closing(sandbox, wanted);
      continue;
    }
    if (sandbox->open_in == channel && sandbox->known) co_return Lease(sandbox, backend, channel);
    if (const auto before = busy_before(*sandbox, *channel)) {
      if (before->identity().settings != channel->identity().settings) throw still_busy();
      co_return Lease(sandbox, backend, before);
    }
    try {
      const Change changing(sandbox);
      co_await open(*sandbox, *backend, wanted, 0);
    } catch (...) {
      forget_if_unknown(id);
      throw;
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
  const Wanted wanted{.tenant = tenant, .agent = agent, .request_id = std::move(request_id)};
  const auto found = sandboxes_.find(id);
  auto sandbox = found == sandboxes_.end() ? nullptr : found->second;
  if (!sandbox) sandbox = co_await find_unrecorded(id, wanted);
  try {
    const Change changing = co_await change(sandbox);
    if (const auto again = sandboxes_.find(id); again == sandboxes_.end() || again->second != sandbox)
      throw ApiError{.code = Code::kSandboxNotFound, .message = "the sandbox was ended by another call"};
    const auto backend = backends_.find(sandbox->row.backend);
    if (!backend) co_return forget_abandoned(*sandbox, purge);
    co_await backends_.settled(std::chrono::seconds(20), backend->config.name);
    co_await wait_for_calls(*sandbox);
    const bool was_lost = sandbox->row.state == SandboxRow::State::kLost;
    {
      const auto place = backend->gate.enter(tenant);
      co_await close(*sandbox, *backend, purge ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP, wanted.request_id);
    }
    if (purge || was_lost || !sandbox->row.was_accepted()) co_await forget_recorded(*sandbox);
    log::info("sandbox_ended",
              {{"sandbox_id", id}, {"tenant", tenant}, {"agent_id", agent}, {"purged", purge}});
  } catch (...) {
    forget_if_unknown(id);
    throw;
  }
}

// What a backend has of an agent that the state store does not know: a lost store must not make it
// unreachable for ever.
asio::awaitable<std::shared_ptr<Sandbox>> Sandboxes::find_unrecorded(const std::string& id,
                                                                     const Wanted& wanted) {
  std::exception_ptr unsure;  // a backend that could not look may have it
  const auto all = backends_.all();
  for (const auto& backend : all) {
    const bool serves = backend->channel && backend->settled && backend->probe &&
                        backend->probe->verdict != ISOGATE_PROBE_UNAVAILABLE;
    if (!serves) continue;
    if (const auto now = sandboxes_.find(id); now != sandboxes_.end()) co_return now->second;
    const auto sandbox = find_or_make(id, wanted);
    sandbox->row.backend = backend->config.name;
    sandbox->row.state = SandboxRow::State::kOpening;
    bool there = false;
    try {
      const Change changing(sandbox);
      const auto place = backend->gate.enter(wanted.tenant);
      there = co_await attach_to_close(*sandbox, *backend, wanted.request_id);
    } catch (...) {
      unsure = std::current_exception();
    }
    if (there) co_return sandbox;
    forget_if_unknown(id);
  }
  if (unsure) std::rethrow_exception(unsure);
  throw ApiError{.code = Code::kSandboxNotFound,
                 .message = "agent `" + printable(wanted.agent, 70) + "` has no sandbox"};
}

// From here on only another close may follow, until one succeeds. `mode` is ISOGATE_CLOSE_STOP or _PURGE.
asio::awaitable<void> Sandboxes::close(Sandbox& sandbox, Backend& backend, uint32_t mode,
                                       const std::string& request_id) {
  sandbox.closing = std::max(sandbox.closing.value_or(mode), mode);
  const bool purge = *sandbox.closing == ISOGATE_CLOSE_PURGE;
  if (purge && sandbox.known && sandbox.row.state != SandboxRow::State::kEnding) {
    sandbox.row.state = SandboxRow::State::kEnding;
    // A full disk must not keep anybody from freeing it: without the record a crash in the middle of the
    // purge is seen as a lost workspace.
    if (const auto recorded = co_await commit(sandbox); !recorded)
      log::warn("purge_not_recorded",
                {{"sandbox_id", sandbox.row.sandbox_id}, {"reason", recorded.error().message}});
  }
  for (const bool last : {false, true}) {
    const auto& in = sandbox.open_in;
    const bool is_open = in && (in == backend.channel || (sandbox.runs && in->connected()));
    if (!is_open && !co_await attach_to_close(sandbox, backend, request_id)) {
      if (!purge) break;
      // Its workspace is gone, but perhaps not all else: what is complete can be removed completely.
      const Wanted wanted{
          .tenant = sandbox.row.tenant, .agent = sandbox.row.agent_id, .request_id = request_id};
      const Opener by = opener(backend);
      (void)co_await ask_to_open(sandbox, backend, by, wanted, 0);
      sandbox.open_in = by.channel->shared_from_this();
    }
    try {
      co_await close_in(sandbox, sandbox.open_in->hold(), request_id);
      break;
    } catch (const ApiError&) {
      if (last || sandbox.open_in) throw;  // null: that host does not have it open
    }
  }
  sandbox.closing.reset();
  sandbox.open_in.reset();
}

// Asks the host that has it open. Where that host says that it has not, `open_in` is null afterwards.
asio::awaitable<void> Sandboxes::close_in(Sandbox& sandbox, std::shared_ptr<BackendChannel> channel,
                                          const std::string& request_id) {
  ipc::CloseCall call;
  call.call.request_id = request_id;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.mode = sandbox.closing.value_or(ISOGATE_CLOSE_STOP);
  const ipc::Reply reply = co_await channel->call(std::move(call));
  if (reply.status == ISOGATE_NO_SANDBOX || !channel->connected()) sandbox.open_in.reset();
  if (reply.status != ISOGATE_OK) throw from_backend({reply.status, reply.os_errno, reply.message});
}

// False: its backend says that there is nothing.
asio::awaitable<bool> Sandboxes::attach_to_close(Sandbox& sandbox, Backend& backend,
                                                 const std::string& request_id) {
  const Opener by = opener(backend);
  ipc::OpenCall call;
  call.call.request_id = request_id;
  call.flags =
      ISOGATE_OPEN_ATTACH_ONLY | (by.config.limits_best_effort ? ISOGATE_OPEN_LIMITS_BEST_EFFORT : 0u);
  call.egress = by.config.egress;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.tenant = sandbox.row.tenant;
  call.agent_id = sandbox.row.agent_id;
  call.handle = sandbox.row.handle;
  call.limits = by.config.sandbox_limits;
  const ipc::Reply reply = co_await by.channel->call(std::move(call));
  if (reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST) co_return false;
  if (reply.status != ISOGATE_OK) throw from_backend({reply.status, reply.os_errno, reply.message});
  sandbox.runs = (std::get<ipc::Opened>(reply.value).flags & ISOGATE_SANDBOX_RUNS) != 0;
  sandbox.open_in = sandbox.runs ? by.channel : by.channel->shared_from_this();
  co_return true;
}

// What a close that failed has left: a call waits for it, but not for long, and never runs beside it.
asio::awaitable<void> Sandboxes::finish_closing(std::shared_ptr<Sandbox> sandbox, const Wanted& wanted) {
  const auto backend = backends_.find(sandbox->row.backend);
  const bool purge = *sandbox->closing == ISOGATE_CLOSE_PURGE;
  const Change changing(sandbox);
  std::optional<ApiError> failure;
  try {
    if (!backend) throw is_restarting(sandbox->row.backend);
    const auto place = backend->gate.enter(wanted.tenant);
    co_await wait_for_calls(*sandbox);
    co_await close(*sandbox, *backend, *sandbox->closing, wanted.request_id);
    if (purge) co_await forget_recorded(*sandbox);
  } catch (const ApiError& error) {
    failure = error;
  }
  if (failure) {
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message = "an earlier end of this sandbox is not finished: " + failure->message,
                   .retry_after_sec = 5};
  }
}

// Once it is recorded that it is gone: an answer before that could be undone by a crash.
asio::awaitable<void> Sandboxes::forget_recorded(Sandbox& sandbox) {
  const std::string id = sandbox.row.sandbox_id;
  std::function<void(State::Done)> remove = [&](State::Done done) {
    state_.remove_sandbox(id, std::move(done));
  };
  if (const auto recorded = co_await stored(std::move(remove)); !recorded) {
    sandbox.closing = ISOGATE_CLOSE_PURGE;
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "the end of the sandbox cannot be recorded: " + recorded.error().message,
                   .retry_after_sec = 5};
  }
  sandbox.known = false;
  const auto found = sandboxes_.find(id);
  if (found != sandboxes_.end() && found->second.get() == &sandbox) forget(id);
}

bool Sandboxes::still_good(const Lease& lease, const Wanted& wanted) const {
  const Sandbox& sandbox = *lease.sandbox;
  const auto found = sandboxes_.find(sandbox.row.sandbox_id);
  if (found == sandboxes_.end() || found->second != lease.sandbox || sandbox.closing) return false;
  if (sandbox.open_in != lease.channel || !lease.channel->connected()) return false;
  const Decision decision = decide(sandbox, wanted);
  if (!decision.chosen) throw refusal_of(decision);
  return *decision.chosen == sandbox.row.backend;
}

void Sandboxes::distrust(const Lease& lease) {
  Sandbox& sandbox = *lease.sandbox;
  sandbox.closing = std::max<uint32_t>(sandbox.closing.value_or(ISOGATE_CLOSE_STOP), ISOGATE_CLOSE_STOP);
}

void Sandboxes::add_listener(const std::string& address, uint32_t port) {
  if (gateway_listeners_.empty()) {
    gateway_address_ = address;
    gateway_port_ = port;
  } else {
    gateway_listeners_ += ' ';
  }
  const bool v6 = address.find(':') != std::string::npos;
  gateway_listeners_ += (v6 ? "[" + address + "]" : address) + ":" + std::to_string(port);
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
