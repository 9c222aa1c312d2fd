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

// Who opens it, and what it claims: a reload may put others in their place before the sandbox is open and
// measured, and then it is by these that it is judged.
struct Sandboxes::Opener {
  std::shared_ptr<BackendChannel> channel;  // held
  BackendConfig config;
  ipc::Probe probe;
};

// `how`: ISOGATE_OPEN_ATTACH_ONLY, ISOGATE_OPEN_AS_IT_IS or 0.
asio::awaitable<void> Sandboxes::open(Sandbox& sandbox, Backend& backend, const Wanted& wanted,
                                      uint32_t how) {
  if (!backend.channel || !backend.settled || !backend.probe) throw is_restarting(backend.config.name);
  const Opener by{backend.channel->hold(), backend.config, *backend.probe};
  const bool for_a_call = how != ISOGATE_OPEN_AS_IT_IS;
  if (const auto error = state_.last_error(); error && for_a_call) {
    throw ApiError{
        .code = Code::kQuotaExceeded,
        .message = "no sandbox is opened while the state store cannot be written: " + error->message};
  }
  std::optional<CallGate::Ticket> ticket;
  if (for_a_call) ticket.emplace(backend.gate.enter(wanted.tenant));
  co_await close_before(sandbox, by);
  const ipc::Opened opened = co_await ask_to_open(sandbox, backend, by, wanted, how);
  co_await check_evidence(sandbox, by, opened, wanted.request_id);
  SandboxRow& row = sandbox.row;
  const bool changed = !sandbox.known || row.backend != by.config.name || row.handle != opened.handle ||
                       row.isolation != opened.isolation || row.uid != opened.uid ||
                       row.state != SandboxRow::State::kActive;
  row.backend = by.config.name;
  row.handle = opened.handle;
  row.isolation = opened.isolation;
  row.uid = opened.uid;
  row.state = SandboxRow::State::kActive;
  if (for_a_call) row.last_used_ms = now_ms();
  if (row.created_ms == 0) row.created_ms = row.last_used_ms;
  if (changed) co_await commit(sandbox);
  sandbox.known = true;
  sandbox.runs = (opened.flags & ISOGATE_SANDBOX_RUNS) != 0;
  sandbox.open_in = sandbox.runs ? by.channel : by.channel->shared_from_this();
  log::info(for_a_call ? "sandbox_opened" : "sandbox_taken_up",
            {{"sandbox_id", row.sandbox_id},
             {"tenant", row.tenant},
             {"agent_id", row.agent_id},
             {"backend", by.config.name},
             {"isolation", isolation_name(opened.isolation)},
             {"attached", (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0}});
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
  call.flags = how | (sandbox.known ? ISOGATE_OPEN_KNOWN : 0u) |
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
  ApiError error = from_backend({reply.status, reply.os_errno, reply.message});
  if (reply.status == ISOGATE_LOST)
    error.code = Code::kBackendUnavailable;  // nothing of the tenant's had started
  if (!for_a_call) error.permanent = final_word;
  throw error;
}

// A mismatch closes the sandbox. What was opened before may hold a tenant's programs: it is not measured
// again.
asio::awaitable<void> Sandboxes::check_evidence(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                                const std::string& request_id) {
  if (sandbox.known && (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0 &&
      opened.isolation == sandbox.row.isolation)
    co_return;
  isogate_evidence evidence{};
  std::string why_not;
  if ((by.probe.capabilities & ISOGATE_CAP_EVIDENCE) != 0) {
    ipc::EvidenceCall call;
    call.call.request_id = request_id;
    call.sandbox_id = sandbox.row.sandbox_id;
    call.gateway_address = gateway_address_;
    call.gateway_port = gateway_port_;
    const ipc::Reply reply = co_await by.channel->call(std::move(call));
    if (reply.status != ISOGATE_OK && !by.channel->connected()) throw is_restarting(by.config.name);
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
  auto mismatch = evidence_mismatch(evidence, claim, host_namespaces_);
  if (mismatch) *mismatch += why_not;
  if (!sandbox.known && (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0 &&
      opened.isolation >= ISOGATE_ISOLATION_NAMESPACE) {
    mismatch = "it was there already, but the state store does not know it, so a tenant may have run in it";
  }
  if (!mismatch) co_return;
  log::error("evidence_mismatch",
             {{"sandbox_id", sandbox.row.sandbox_id}, {"backend", by.config.name}, {"mismatch", *mismatch}});
  ipc::CloseCall close;
  close.call.request_id = request_id;
  close.sandbox_id = sandbox.row.sandbox_id;
  // One that was made just now, for nobody yet, leaves nothing.
  const bool fresh = !sandbox.known && (opened.flags & ISOGATE_SANDBOX_ATTACHED) == 0;
  close.mode = fresh ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
  co_await by.channel->call(std::move(close));
  throw ApiError{.code = Code::kBackendUnavailable,
                 .message = "the sandbox was closed: what was measured inside is not what backend `" +
                            by.config.name + "` claims: " + *mismatch};
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

}  // namespace isogate::front
