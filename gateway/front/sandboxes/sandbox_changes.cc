#include "gateway/front/sandboxes/sandbox_changes.h"

#include "gateway/ipc/codec.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr std::chrono::seconds kCallsEndWithin{Cancel::kReleaseWithin + std::chrono::seconds(1)},
    kAnswersEndWithin{1};

const Backend& with_host(const Backend& backend) {
  if (!backend.channel || !backend.settled || !backend.probe) throw without_host(backend);
  return backend;
}

asio::awaitable<ipc::Reply> ask_to_close(Sandbox& sandbox, std::shared_ptr<BackendChannel> channel,
                                         uint32_t mode, const std::string& request_id) {
  sandbox.end_watches(mode == ISOGATE_CLOSE_DETACH ? WatchEnd::kReloaded : WatchEnd::kSandboxEnded);
  ipc::CloseCall call;
  call.call.request_id = request_id;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.mode = mode;
  co_return co_await channel->call(std::move(call));
}

// Whether that host may have it open after this answer to its close. From a replaced host that hangs the next
// one takes it, unless something of it runs there.
bool has_it(const Sandbox& sandbox, const BackendChannel& host, const ipc::Reply& closed) {
  if (closed.status == ISOGATE_NO_SANDBOX || !host.connected()) return false;
  return sandbox.runs || host.open() || closed.status != ISOGATE_LOST;
}

}  // namespace

// One opening. A reload may replace the channel and the claims of the backend before the sandbox is open and
// measured, but those from the beginning are used for the check.
struct SandboxChanges::Opening {
  SandboxChanges& owner;
  Sandbox& sandbox;
  Backend& backend;
  const std::string& request_id;
  const uint32_t how;
  const bool for_a_call = how != ISOGATE_OPEN_RUNNING_ONLY;
  const std::shared_ptr<BackendChannel> channel = with_host(backend).channel->hold();
  const BackendConfig config = backend.config;
  const ipc::Probe probe = *backend.probe;
  SandboxRow& row = sandbox.row;
  ipc::Opened opened;
  bool intended = false;  // by this opening: nothing of an earlier one can be there

  asio::awaitable<void> run(const Wanted& wanted) {
    std::shared_ptr<void> place;
    if (for_a_call) place = backend.file_calls.enter(row.tenant);
    try {
      co_await open_as(wanted);
    } catch (const ApiError& error) {
      if (for_a_call) {
        log::warn("sandbox_not_opened", {{"request_id", request_id},
                                         {"sandbox_id", row.sandbox_id},
                                         {"tenant", row.tenant},
                                         {"agent_id", row.agent_id},
                                         {"backend", config.name},
                                         {"code", error.code_text()},
                                         {"reason", error.message}});
      }
      throw;
    }
  }

  asio::awaitable<void> open_as(const Wanted& wanted) {
    if (const auto error = owner.records_.last_error(); error && for_a_call) {
      throw ApiError{
          .code = Code::kQuotaExceeded,
          .message = "no sandbox is opened while the state store cannot be written: " + error->message};
    }
    co_await close_in_host_before();
    if (!sandbox.known) co_await record_intent(wanted);
    co_await ask_for_unused();
    sandbox.runs = runs();
    std::exception_ptr failure;
    try {
      co_await check_evidence();
      std::optional<uint64_t> disk;
      if (for_a_call) disk = co_await ask_for_disk(sandbox, channel->shared_from_this());
      co_await accept(disk);
    } catch (...) {
      failure = std::current_exception();
    }
    if (failure) {
      co_await undo();
      std::rethrow_exception(failure);
    }
    take();
    log::info(for_a_call ? "sandbox_opened" : "sandbox_reattached",
              {{"sandbox_id", row.sandbox_id},
               {"tenant", row.tenant},
               {"agent_id", row.agent_id},
               {"backend", config.name},
               {"isolation", isolation_name(opened.isolation)},
               {"attached", (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0}});
  }

  // Nothing but that: `opened` is the answer. Throws ApiError.
  asio::awaitable<void> ask() {
    const uint32_t known = sandbox.known && row.was_accepted() ? ISOGATE_OPEN_KNOWN : 0u;
    if (known != 0 && sandbox.emptied) throw workspace_lost();
    // What fails in the background costs no call.
    if (for_a_call) backend.breakers.started(row.tenant, std::chrono::steady_clock::now());
    const ipc::Reply reply = co_await send(known);
    if (for_a_call) {
      owner.backends_.judge(backend, row, reply);
      backend.breakers.ended(row.tenant);
    }
    if (reply.status == ISOGATE_SANDBOX_LOST) row.state = SandboxRow::State::kLost;
    if (reply.status == ISOGATE_OK) {
      opened = std::get<ipc::Opened>(reply.value);
      const bool emptied = known != 0 && (probe.capabilities & ISOGATE_CAP_PERSISTENT) != 0 &&
                           (opened.flags & ISOGATE_SANDBOX_ATTACHED) == 0;
      if (emptied) co_await refuse_emptied();
      co_return;
    }
    const bool nothing_made = reply.status != ISOGATE_LOST && channel->connected();
    if (sandbox.known && row.state == SandboxRow::State::kOpening) {
      if (nothing_made && intended)
        owner.records_.remove_record(sandbox);
      else if (for_a_call)
        sandbox.left_over = true;
    }
    ApiError error = from_backend(reply.error());
    if (reply.status == ISOGATE_LOST) {  // nothing of the tenant's had started
      error.code = Code::kBackendUnavailable;
      error.retry_after_sec = 1;
    }
    if (!for_a_call)
      error.permanent = reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST ||
                        reply.status == ISOGATE_UNSUPPORTED;
    throw error;
  }

  // A backend whose workspaces persist has made a new one in place of one with files. Throws ApiError.
  asio::awaitable<void> refuse_emptied() {
    sandbox.runs = runs();
    co_await undo();
    sandbox.emptied = true;
    row.state = SandboxRow::State::kLost;
    [[maybe_unused]] const auto recorded = co_await owner.records_.put(sandbox);  // the log has it otherwise
    throw workspace_lost();
  }

  ApiError workspace_lost() const {
    return from_backend({ISOGATE_SANDBOX_LOST, 0,
                         "its workspace is lost: backend `" + config.name + "` opened an empty one instead"});
  }

  // As attach_to_close().
  asio::awaitable<isogate_status> attach() {
    co_await close_in_host_before();
    const ipc::Reply reply = co_await send(0);
    if (reply.status == ISOGATE_NO_SANDBOX || reply.status == ISOGATE_SANDBOX_LOST) co_return reply.status;
    if (reply.status != ISOGATE_OK) throw from_backend(reply.error());
    opened = std::get<ipc::Opened>(reply.value);
    sandbox.runs = runs();
    take();
    co_return ISOGATE_OK;
  }

  void take_to_close() { sandbox.open_in = channel->shared_from_this(); }

  asio::awaitable<ipc::Reply> send(uint32_t flags) {
    ipc::OpenCall call;
    call.call.request_id = request_id;
    call.flags = how | flags | (config.limits_best_effort ? ISOGATE_OPEN_LIMITS_BEST_EFFORT : 0u);
    call.sandbox_id = row.sandbox_id;
    call.tenant = row.tenant;
    call.agent_id = row.agent_id;
    call.handle = row.handle;
    call.image = row.image;
    call.egress = config.egress;
    call.limits = config.sandbox_limits;
    sandbox.asked = channel->weak_from_this();
    co_return co_await channel->call(std::move(call));
  }

  [[nodiscard]] bool runs() const { return (opened.flags & ISOGATE_SANDBOX_RUNS) != 0; }
  // Of a backend that was removed meanwhile, it is released as by release_removed().
  void take() {
    sandbox.open_in = sandbox.runs && backend.configured ? channel : channel->shared_from_this();
  }

  // Two hosts would take what runs from each other, or wait for each other's lock.
  asio::awaitable<void> close_in_host_before() {
    const auto before = sandbox.may_be_in();
    if (before && before != channel && before->connected()) {
      const ipc::Reply reply = co_await ask_to_close(sandbox, before, ISOGATE_CLOSE_DETACH, "hand-over");
      const bool closed = reply.status == ISOGATE_OK || !has_it(sandbox, *before, reply);
      if (!closed) {
        throw ApiError{.code = Code::kBackendUnavailable,
                       .message = "the backend host from before the reload has not released this sandbox",
                       .retry_after_sec = 1};
      }
    }
    sandbox.open_in.reset();
  }

  // Before the backend is asked: what a crash leaves half-made is then known at the next start.
  asio::awaitable<void> record_intent(const Wanted& wanted) {
    row.backend = config.name;
    row.image = wanted.image.value_or("");
    row.expires_ms = wanted.expires_ms;
    row.e2b_record = wanted.e2b_record;
    owner.records_.note_e2b(row);
    intended = true;
    row.state = SandboxRow::State::kOpening;
    row.created_ms = row.last_used_ms = wall_clock_ms();
    if (const auto recorded = co_await owner.records_.put(sandbox); !recorded)
      throw not_recorded(recorded.error());
    sandbox.known = true;
  }

  // What was never accepted may hold what nobody measured: it is ended, and opened once more.
  asio::awaitable<void> ask_for_unused() {
    const auto may_have_run = [this] {
      return !row.was_accepted() && opened.isolation >= ISOGATE_ISOLATION_NAMESPACE &&
             (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0 && (opened.flags & ISOGATE_SANDBOX_FRESH) == 0;
    };
    co_await ask();
    if (!may_have_run()) co_return;
    sandbox.runs = runs();
    co_await close_again(ISOGATE_CLOSE_STOP);
    co_await ask();
    if (!may_have_run()) co_return;
    co_await undo();
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message =
                       "the sandbox was closed: it was there already, but the state store does not know "
                       "it, so a tenant may have run in it; end it with DELETE /sandboxes/{agent_id}",
                   .permanent = true};
  }

  // At every open: what is measured, or was before the first tenant command, against what is claimed and
  // asked for now. Throws ApiError on a mismatch.
  asio::awaitable<void> check_evidence() {
    isogate_evidence evidence{};
    std::string why_not;
    if ((probe.capabilities & ISOGATE_CAP_EVIDENCE) != 0) {
      ipc::EvidenceCall call;
      call.call.request_id = request_id;
      call.sandbox_id = row.sandbox_id;
      call.gateway_address = owner.gateway_address_;
      call.gateway_port = owner.gateway_port_;
      call.gateway_listeners = owner.gateway_listeners_;
      const ipc::Reply reply = co_await channel->call(std::move(call));
      if (reply.status != ISOGATE_OK && !channel->connected()) throw is_restarting(config.name);
      if (reply.status == ISOGATE_SANDBOX_LOST) {
        row.state = SandboxRow::State::kLost;
        throw from_backend(reply.error());
      }
      if (reply.status == ISOGATE_OK)
        evidence = std::get<isogate_evidence>(reply.value);
      else
        why_not = ": " + reply.message;
    }
    const Claim claim{.isolation = opened.isolation,
                      .locality = probe.locality,
                      .capabilities = probe.capabilities,
                      .uid = opened.uid,
                      .egress = config.egress,
                      .limits = config.sandbox_limits,
                      .limits_best_effort = config.limits_best_effort,
                      .started_by_root = owner.started_by_root_};
    sandbox.in_force = Limits::of(evidence);
    sandbox.ports_refused = ports_obstacle(evidence, claim, owner.host_namespaces_).value_or("");
    const auto mismatch = evidence_mismatch(evidence, claim, owner.host_namespaces_);
    if (!mismatch) co_return;
    log::error("evidence_mismatch",
               {{"sandbox_id", row.sandbox_id}, {"backend", config.name}, {"mismatch", *mismatch + why_not}});
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message = "the sandbox was closed: its evidence does not match the claim of backend `" +
                              config.name + "`: " + *mismatch + why_not,
                   .retry_after_sec = 5};
  }

  // From here on, and not before, something may run in it.
  asio::awaitable<void> accept(std::optional<uint64_t> disk) {
    const SandboxRow before = row;
    if (for_a_call) owner.disks_.check(sandbox, disk);
    if (!disk) disk = row.disk_limit_bytes;
    row.backend = config.name;
    row.handle = opened.handle;
    row.isolation = opened.isolation;
    row.uid = opened.uid;
    row.disk_limit_bytes = disk;
    row.state = SandboxRow::State::kActive;
    const bool changed = row != before;
    if (for_a_call) row.last_used_ms = wall_clock_ms();
    if (!changed) co_return;
    if (const auto recorded = co_await owner.records_.put(sandbox); !recorded) {
      row = before;
      throw not_recorded(recorded.error());
    }
  }

  asio::awaitable<void> close_again(uint32_t mode) {
    sandbox.closing = mode;
    take_to_close();
    const ipc::Reply reply = co_await close_in(sandbox, channel, request_id);
    if (reply.status != ISOGATE_OK) throw from_backend(reply.error());
  }

  // What was opened and not accepted is closed. Where that fails too, nothing but its close may follow.
  asio::awaitable<void> undo() {
    // One that was made just now, for nobody yet, leaves nothing. Without that flag it may be another's.
    const bool fresh = !row.was_accepted() && (opened.flags & ISOGATE_SANDBOX_ATTACHED) == 0 &&
                       (opened.flags & ISOGATE_SANDBOX_FRESH) != 0;
    const uint32_t mode = fresh ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
    try {
      co_await close_again(mode);
    } catch (const ApiError& error) {
      sandbox.left_over = true;
      log::error("sandbox_not_closed", {{"sandbox_id", row.sandbox_id}, {"reason", error.message}});
      co_return;
    }
    if (fresh) owner.records_.remove_record(sandbox);
  }
};

Result<void> SandboxChanges::load() {
  auto namespaces = own_namespaces();
  if (!namespaces) return namespaces.error();
  host_namespaces_ = *namespaces;
  return {};
}

void SandboxChanges::add_listener(const std::string& address, uint32_t port) {
  if (gateway_listeners_.empty()) {
    gateway_address_ = address;
    gateway_port_ = port;
  } else {
    gateway_listeners_ += ' ';
  }
  gateway_listeners_ += join_address(address, std::to_string(port));
}

asio::awaitable<void> SandboxChanges::open(Sandbox& sandbox, Backend& backend, const Wanted& wanted,
                                           uint32_t how) {
  Opening opening{*this, sandbox, backend, wanted.request_id, how};
  co_await opening.run(wanted);
}

asio::awaitable<isogate_status> SandboxChanges::attach_to_close(Sandbox& sandbox, Backend& backend,
                                                                const std::string& request_id) {
  Opening opening{*this, sandbox, backend, request_id, ISOGATE_OPEN_ATTACH_ONLY};
  co_return co_await opening.attach();
}

asio::awaitable<void> SandboxChanges::wait_for_calls(Sandbox& sandbox) {
  sandbox.end_watches(WatchEnd::kSandboxEnded);
  // Also those that only begin now: their lease is older.
  const auto none_is_left = [&sandbox] {
    sandbox.end_calls("the sandbox was ended");
    return sandbox.calls == 0;
  };
  // Then what is left are answers on their way to slow clients: the backend itself is done with them.
  const auto only_answers_are_left = [&sandbox, none_is_left] {
    return none_is_left() || (sandbox.kills.empty() && sandbox.ports.empty());
  };
  if (!co_await sandbox.calling.until(none_is_left, kAnswersEndWithin))
    (void)co_await sandbox.calling.until(only_answers_are_left, kCallsEndWithin - kAnswersEndWithin);
}

asio::awaitable<void> SandboxChanges::close(Sandbox& sandbox, Backend& backend, uint32_t mode,
                                            const std::string& request_id) {
  sandbox.closing = std::max(sandbox.closing.value_or(mode), mode);
  const bool purge = *sandbox.closing == ISOGATE_CLOSE_PURGE;
  if (purge && sandbox.known && sandbox.row.state != SandboxRow::State::kEnding) {
    sandbox.row.state = SandboxRow::State::kEnding;
    // A full disk must not keep anybody from freeing it: without the record a crash in the middle of the
    // purge is seen as a lost workspace.
    if (const auto recorded = co_await records_.put(sandbox); !recorded)
      log::warn("purge_not_recorded",
                {{"sandbox_id", sandbox.row.sandbox_id}, {"reason", recorded.error().message}});
  }
  for (const bool last : {false, true}) {
    const auto& in = sandbox.open_in;
    const bool is_open = in && (in == backend.channel || in->connected());
    isogate_status found = ISOGATE_OK;
    if (!is_open) found = co_await attach_to_close(sandbox, backend, request_id);
    if (found != ISOGATE_OK) {
      if (!purge) co_return sandbox.closed();
      // Its workspace is gone, but perhaps not all else: what is complete can be removed completely.
      Opening opening{*this, sandbox, backend, request_id, 0};
      std::exception_ptr failure;
      try {
        co_await opening.ask();
        opening.take_to_close();
      } catch (const ApiError&) {
        failure = std::current_exception();
      }
      // What that made is closed, too.
      if (failure && found == ISOGATE_NO_SANDBOX) {
        found = co_await attach_to_close(sandbox, backend, request_id);
        if (found == ISOGATE_NO_SANDBOX) co_return sandbox.closed();
      }
      if (failure && found != ISOGATE_OK) std::rethrow_exception(failure);
    }
    const ipc::Reply reply = co_await close_in(sandbox, sandbox.open_in->hold(), request_id);
    if (reply.status == ISOGATE_OK) co_return;
    const bool not_there = reply.status == ISOGATE_NO_SANDBOX;
    if (last && not_there && purge) co_return co_await expect_purged(sandbox, backend, request_id);
    if (last || sandbox.open_in) throw from_backend(reply.error());  // null: that host does not have it open
  }
}

// Its backend opened it to be purged, and then answered that there is no such sandbox. If it finds one all
// the same, files may remain: that is no success, but the agent goes on with what is there.
asio::awaitable<void> SandboxChanges::expect_purged(Sandbox& sandbox, Backend& backend,
                                                    const std::string& request_id) {
  const isogate_status found = co_await attach_to_close(sandbox, backend, request_id);
  if (found == ISOGATE_NO_SANDBOX) co_return sandbox.closed();
  sandbox.closing = ISOGATE_CLOSE_STOP;
  if (found == ISOGATE_OK) {
    const ipc::Reply stopped = co_await close_in(sandbox, sandbox.open_in->hold(), request_id);
    if (stopped.status != ISOGATE_OK) throw from_backend(stopped.error());
  }
  log::error("purge_contradicted",
             {{"sandbox_id", sandbox.row.sandbox_id}, {"backend", backend.config.name}});
  throw ApiError{
      .code = Code::kInternal,
      .message = "files of the sandbox may remain: backend `" + backend.config.name +
                 "` answered its purge with \"no such sandbox\", and knows it still; this is a defect of "
                 "its plugin"};
}

asio::awaitable<void> SandboxChanges::end_in_replaced_host(Sandbox& sandbox, const std::string& request_id) {
  std::shared_ptr<BackendChannel> host;  // held: it would leave with the last call
  if (const auto in = sandbox.may_be_in(); in && in->connected()) {
    host = in->hold();
    if (!sandbox.open_in) sandbox.open_in = in;
  }
  co_await wait_for_calls(sandbox);
  if (!host) co_return;
  const ipc::Reply reply = co_await close_in(sandbox, host, request_id);
  // null: that host does not have it open
  if (reply.status != ISOGATE_OK && sandbox.open_in) throw from_backend(reply.error());
}

// Asks the host that has it open. If that host does not have it, `open_in` is null afterwards.
asio::awaitable<ipc::Reply> SandboxChanges::close_in(Sandbox& sandbox,
                                                     std::shared_ptr<BackendChannel> channel,
                                                     const std::string& request_id) {
  const uint32_t mode = sandbox.closing.value_or(ISOGATE_CLOSE_STOP);
  ipc::Reply reply = co_await ask_to_close(sandbox, channel, mode, request_id);
  if (!has_it(sandbox, *channel, reply)) sandbox.open_in.reset();
  if (reply.status == ISOGATE_OK) sandbox.closed();
  co_return reply;
}

asio::awaitable<void> SandboxChanges::finish_closing(SandboxPtr sandbox, const std::string& request_id) {
  const auto backend = backends_.find(sandbox->row.backend);
  const bool purge = *sandbox->closing == ISOGATE_CLOSE_PURGE;
  const Change changing(sandbox);
  try {
    if (!backend) throw is_restarting(sandbox->row.backend);
    const auto place = backend->file_calls.enter(sandbox->row.tenant);
    co_await wait_for_calls(*sandbox);
    co_await close(*sandbox, *backend, *sandbox->closing, request_id);
    if (purge) co_await records_.remove(*sandbox);
  } catch (const ApiError& error) {
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message = "an earlier end of this sandbox is not finished: " + error.message,
                   .retry_after_sec = error.permanent ? 0u : 5u,
                   .permanent = error.permanent};
  }
}

}  // namespace isogate::front
