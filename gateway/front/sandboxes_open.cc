#include <boost/asio/post.hpp>
#include <chrono>

#include "gateway/base/log.h"
#include "gateway/front/sandboxes.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

}  // namespace

Sandboxes::Opener Sandboxes::opener(Backend& backend) {
  if (!backend.channel || !backend.settled || !backend.probe) throw is_restarting(backend.config.name);
  return {backend.channel->hold(), backend.config, *backend.probe};
}

// `how`: ISOGATE_OPEN_AS_IT_IS or 0.
asio::awaitable<void> Sandboxes::open(Sandbox& sandbox, Backend& backend, const Wanted& wanted,
                                      uint32_t how) {
  const Opener by = opener(backend);
  const bool for_a_call = how != ISOGATE_OPEN_AS_IT_IS;
  if (const auto error = state_.last_error(); error && for_a_call) {
    throw ApiError{
        .code = Code::kQuotaExceeded,
        .message = "no sandbox is opened while the state store cannot be written: " + error->message};
  }
  std::optional<CallGate::Ticket> ticket;
  if (for_a_call) ticket.emplace(backend.gate.enter(wanted.tenant));
  co_await close_before(sandbox, by);
  if (!sandbox.known) co_await record_intent(sandbox, by);
  const ipc::Opened opened = co_await open_unused(sandbox, backend, by, wanted, how);
  sandbox.runs = (opened.flags & ISOGATE_SANDBOX_RUNS) != 0;
  std::exception_ptr failure;
  try {
    co_await check_evidence(sandbox, by, opened, wanted.request_id);
    co_await accept(sandbox, by, opened, for_a_call);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    co_await undo_open(sandbox, by, opened, wanted.request_id);
    std::rethrow_exception(failure);
  }
  sandbox.open_in = sandbox.runs ? by.channel : by.channel->shared_from_this();
  log::info(for_a_call ? "sandbox_opened" : "sandbox_taken_up",
            {{"sandbox_id", sandbox.row.sandbox_id},
             {"tenant", sandbox.row.tenant},
             {"agent_id", sandbox.row.agent_id},
             {"backend", by.config.name},
             {"isolation", isolation_name(opened.isolation)},
             {"attached", (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0}});
}

// Before the backend is asked: what a crash leaves half-made is then known at the next start.
asio::awaitable<void> Sandboxes::record_intent(Sandbox& sandbox, const Opener& by) {
  SandboxRow& row = sandbox.row;
  row.backend = by.config.name;
  row.state = SandboxRow::State::kOpening;
  row.created_ms = row.last_used_ms = now_ms();
  if (const auto recorded = co_await commit(sandbox); !recorded)
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "the sandbox cannot be recorded: " + recorded.error().message};
  sandbox.known = true;
}

// What was never accepted may hold what nobody measured: it is ended, and opened once more.
asio::awaitable<ipc::Opened> Sandboxes::open_unused(Sandbox& sandbox, Backend& backend, const Opener& by,
                                                    const Wanted& wanted, uint32_t how) {
  const auto may_have_run = [&](const ipc::Opened& opened) {
    return !sandbox.row.was_accepted() && opened.isolation >= ISOGATE_ISOLATION_NAMESPACE &&
           (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0 && (opened.flags & ISOGATE_SANDBOX_FRESH) == 0;
  };
  ipc::Opened opened = co_await ask_to_open(sandbox, backend, by, wanted, how);
  if (!may_have_run(opened)) co_return opened;
  sandbox.closing = ISOGATE_CLOSE_STOP;
  sandbox.runs = (opened.flags & ISOGATE_SANDBOX_RUNS) != 0;
  sandbox.open_in = by.channel->shared_from_this();
  co_await close_in(sandbox, by.channel, wanted.request_id);
  sandbox.closing.reset();
  sandbox.open_in.reset();
  opened = co_await ask_to_open(sandbox, backend, by, wanted, how);
  if (!may_have_run(opened)) co_return opened;
  co_await undo_open(sandbox, by, opened, wanted.request_id);
  throw ApiError{.code = Code::kBackendUnavailable,
                 .message =
                     "the sandbox was closed: it was there already, but the state store does not know "
                     "it, so a tenant may have run in it; end it with DELETE /sandboxes/{agent_id}"};
}

// From here on, and not before, something may run in it.
asio::awaitable<void> Sandboxes::accept(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                        bool for_a_call) {
  SandboxRow& row = sandbox.row;
  const SandboxRow before = row;
  const bool changed = row.backend != by.config.name || row.handle != opened.handle ||
                       row.isolation != opened.isolation || row.uid != opened.uid ||
                       row.state != SandboxRow::State::kActive;
  row.backend = by.config.name;
  row.handle = opened.handle;
  row.isolation = opened.isolation;
  row.uid = opened.uid;
  row.state = SandboxRow::State::kActive;
  if (for_a_call) row.last_used_ms = now_ms();
  if (!changed) co_return;
  if (const auto recorded = co_await commit(sandbox); !recorded) {
    row = before;
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "the sandbox cannot be recorded: " + recorded.error().message};
  }
}

// What was opened and not accepted is closed. Where that fails too, nothing but its close may follow.
asio::awaitable<void> Sandboxes::undo_open(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                           const std::string& request_id) {
  // One that was made just now, for nobody yet, leaves nothing. What is not said to be so may be another's.
  const bool fresh = !sandbox.row.was_accepted() && (opened.flags & ISOGATE_SANDBOX_ATTACHED) == 0 &&
                     (opened.flags & ISOGATE_SANDBOX_FRESH) != 0;
  sandbox.closing = fresh ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
  sandbox.open_in = by.channel->shared_from_this();
  try {
    co_await close_in(sandbox, by.channel, request_id);
  } catch (const ApiError& error) {
    log::error("sandbox_not_closed", {{"sandbox_id", sandbox.row.sandbox_id}, {"reason", error.message}});
    co_return;
  }
  sandbox.closing.reset();
  sandbox.open_in.reset();
  if (fresh) forget_intent(sandbox);
}

// Nothing of it is left. Its record may go later: a sandbox that is not there is found not to be.
void Sandboxes::forget_intent(Sandbox& sandbox) {
  sandbox.known = false;
  state_.remove_sandbox(sandbox.row.sandbox_id, {});
}

// The host before: two of them would take what runs from each other.
asio::awaitable<void> Sandboxes::close_before(Sandbox& sandbox, const Opener& by) {
  const auto before = sandbox.open_in;
  if (sandbox.runs && before && before != by.channel && before->connected()) {
    ipc::CloseCall call;
    call.call.request_id = "hand-over";
    call.sandbox_id = sandbox.row.sandbox_id;
    call.mode = ISOGATE_CLOSE_DETACH;
    const ipc::Reply reply = co_await before->call(std::move(call));
    const bool closed = reply.status == ISOGATE_OK || reply.status == ISOGATE_NO_SANDBOX;
    if (!closed && before->connected()) {
      throw ApiError{.code = Code::kBackendUnavailable,
                     .message = "the host that had this sandbox before a reload does not let go of it",
                     .retry_after_sec = 1};
    }
  }
  sandbox.open_in.reset();
}

asio::awaitable<ipc::Opened> Sandboxes::ask_to_open(Sandbox& sandbox, Backend& backend, const Opener& by,
                                                    const Wanted& wanted, uint32_t how) {
  ipc::OpenCall call;
  call.call.request_id = wanted.request_id;
  call.flags = how | (sandbox.known && sandbox.row.was_accepted() ? ISOGATE_OPEN_KNOWN : 0u) |
               (by.config.limits_best_effort ? ISOGATE_OPEN_LIMITS_BEST_EFFORT : 0u);
  call.egress = by.config.egress;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.tenant = sandbox.row.tenant;
  call.agent_id = sandbox.row.agent_id;
  call.handle = sandbox.row.handle;
  call.limits = by.config.sandbox_limits;
  const bool for_a_call = how != ISOGATE_OPEN_AS_IT_IS;  // what fails in the background costs no call
  if (for_a_call) backend.breakers.started(wanted.tenant, std::chrono::steady_clock::now());
  const ipc::Reply reply = co_await by.channel->call(std::move(call));
  if (for_a_call) backends_.judge(backend, sandbox.row, reply);
  const bool final_word = reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST ||
                          reply.status == ISOGATE_UNSUPPORTED;
  if (reply.status == ISOGATE_SANDBOX_LOST) sandbox.row.state = SandboxRow::State::kLost;
  if (reply.status == ISOGATE_OK) co_return std::get<ipc::Opened>(reply.value);
  const bool nothing_made = reply.status != ISOGATE_LOST && by.channel->connected();
  if (nothing_made && sandbox.known && sandbox.row.state == SandboxRow::State::kOpening)
    forget_intent(sandbox);
  ApiError error = from_backend({reply.status, reply.os_errno, reply.message});
  if (reply.status == ISOGATE_LOST)
    error.code = Code::kBackendUnavailable;  // nothing of the tenant's had started
  if (!for_a_call) error.permanent = final_word;
  throw error;
}

// At every open: what is measured, or was before the first tenant command, against what is claimed and asked
// for now. Throws ApiError on a mismatch.
asio::awaitable<void> Sandboxes::check_evidence(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                                const std::string& request_id) {
  isogate_evidence evidence{};
  std::string why_not;
  if ((by.probe.capabilities & ISOGATE_CAP_EVIDENCE) != 0) {
    ipc::EvidenceCall call;
    call.call.request_id = request_id;
    call.sandbox_id = sandbox.row.sandbox_id;
    call.gateway_address = gateway_address_;
    call.gateway_port = gateway_port_;
    call.gateway_listeners = gateway_listeners_;
    const ipc::Reply reply = co_await by.channel->call(std::move(call));
    if (reply.status != ISOGATE_OK && !by.channel->connected()) throw is_restarting(by.config.name);
    if (reply.status == ISOGATE_SANDBOX_LOST) {
      sandbox.row.state = SandboxRow::State::kLost;
      throw from_backend({reply.status, reply.os_errno, reply.message});
    }
    if (reply.status == ISOGATE_OK)
      evidence = std::get<isogate_evidence>(reply.value);
    else
      why_not = ": " + reply.message;
  }
  const Claim claim{.isolation = opened.isolation,
                    .locality = by.probe.locality,
                    .capabilities = by.probe.capabilities,
                    .uid = opened.uid,
                    .egress = by.config.egress,
                    .limits = by.config.sandbox_limits,
                    .limits_best_effort = by.config.limits_best_effort,
                    .started_by_root = started_by_root_};
  const auto mismatch = evidence_mismatch(evidence, claim, host_namespaces_);
  if (!mismatch) co_return;
  log::error("evidence_mismatch", {{"sandbox_id", sandbox.row.sandbox_id},
                                   {"backend", by.config.name},
                                   {"mismatch", *mismatch + why_not}});
  throw ApiError{.code = Code::kBackendUnavailable,
                 .message = "the sandbox was closed: what was measured inside is not what backend `" +
                            by.config.name + "` claims: " + *mismatch + why_not};
}

// Waits until the row is on disk: an exec answers only after that.
asio::awaitable<Result<void>> Sandboxes::commit(const Sandbox& sandbox) {
  std::function<void(State::Done)> put = [&](State::Done done) {
    state_.put_sandbox(sandbox.row, std::move(done));
  };
  co_return co_await stored(std::move(put));
}

// Asks the store for one change, and waits for what came of it.
asio::awaitable<Result<void>> Sandboxes::stored(std::function<void(State::Done)> act) {
  const auto done = std::make_shared<Event>(executor_);
  const auto outcome = std::make_shared<std::optional<Error>>();
  act([executor = executor_, done, outcome](Result<void> result) {
    if (!result) *outcome = result.error();
    asio::post(executor, [done] { done->set(); });
  });
  co_await done->wait();
  if (*outcome) co_return **outcome;
  co_return Result<void>();
}

}  // namespace isogate::front
