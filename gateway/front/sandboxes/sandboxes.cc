#include "gateway/front/sandboxes/sandboxes.h"

#include <sys/random.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "gateway/config/images.h"
#include "gateway/front/base/event.h"
#include "gateway/front/base/names.h"
#include "gateway/front/base/own_fd.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/sandboxes/enumeration.h"
#include "gateway/ipc/codec.h"
#include "lib/clock.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using std::chrono::seconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kDiskPatience{5};
constexpr size_t kIdleAtOnce = 4;  // per backend, whose host has work for calls meanwhile
constexpr size_t kExpiredAtOnce = 16;
constexpr seconds kExpiredAgain{30};  // what could not be ended
constexpr std::chrono::seconds kCallsEndWithin{Cancel::kReleaseWithin + std::chrono::seconds(1)},
    kAnswersEndWithin{1};

// Before its host is asked to close it, which waits for what runs.
void end_watches_of(Sandbox& sandbox, WatchEnd why) {
  for (auto* end : std::exchange(sandbox.watches, {})) (*end)(why);
}

std::string verdicts_json(const Decision& decision) {
  nlohmann::ordered_json tried = nlohmann::ordered_json::array();
  for (const auto& verdict : decision.verdicts)
    tried.push_back({{"backend", verdict.name}, {"reason", verdict.eligible ? "eligible" : verdict.reason}});
  return json_text({{"tried", std::move(tried)}});
}

ApiError still_busy() {
  return {.code = Code::kBackendUnavailable,
          .message =
              "the settings of this sandbox have changed, and calls that began before still run in it: "
              "when they have ended it is opened again",
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

namespace {

ApiError no_sandbox(const std::string& agent) {
  return {.code = Code::kSandboxNotFound, .message = "agent `" + printable(agent, 70) + "` has no sandbox"};
}

}  // namespace

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

namespace {

// Which one it has, or will have.
const std::string& image_of(const Sandbox& sandbox, const Wanted& wanted) {
  return sandbox.known || !wanted.image ? sandbox.row.image : *wanted.image;
}

void check_image_stays(const Sandbox& sandbox, const Wanted& wanted) {
  if (!sandbox.known || !wanted.image || *wanted.image == sandbox.row.image) return;
  const auto named = [](const std::string& image) {
    return image.empty() ? std::string("its backend's own image") : "image `" + image + "`";
  };
  throw ApiError{.code = Code::kAlreadyExists,
                 .message = "the sandbox of agent `" + printable(wanted.agent, 70) + "` has " +
                            named(sandbox.row.image) + ", not " + named(*wanted.image) +
                            ": an image is chosen once; end the sandbox with DELETE "
                            "/sandboxes/{agent_id}?purge=true, or name another agent"};
}

void check_image_admitted(const std::string& image, const BackendConfig& config) {
  if (image.empty() || image_admitted(config.images, image)) return;
  throw ApiError{.code = Code::kPermissionDenied,
                 .message = "image `" + image + "` is not admitted by `images` of backend `" + config.name +
                            "`: ask the operator for it, or leave `image` out"};
}

}  // namespace

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
    if (!sandbox->row.e2b_record.empty()) e2b_agents_[sandbox->row.agent_id] = sandbox->row.sandbox_id;
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
  if (!image_of(sandbox, wanted).empty()) request.capabilities |= ISOGATE_CAP_IMAGE;
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
    if (wanted.existing && !sandboxes_.contains(id)) throw no_sandbox(wanted.agent);
    const auto sandbox = find_or_make(id, wanted);
    if (sandbox->changing) {  // and may be another one afterwards
      (void)co_await change(sandbox);
      continue;
    }
    if (wanted.existing && !sandbox->known) throw no_sandbox(wanted.agent);
    check_image_stays(*sandbox, wanted);
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
      check_image_admitted(image_of(*sandbox, wanted), backend->config);
      const Change changing(sandbox);
      co_await open(*sandbox, *backend, wanted, wanted.running ? ISOGATE_OPEN_RUNNING_ONLY : 0);
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
  if (!found->second->row.e2b_record.empty()) e2b_agents_.erase(found->second->row.agent_id);
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
  end_watches_of(sandbox, WatchEnd::kSandboxEnded);
  sandbox.open_in.reset();
}

asio::awaitable<void> Sandboxes::wait_for_calls(Sandbox& sandbox) {
  end_watches_of(sandbox, WatchEnd::kSandboxEnded);
  asio::steady_timer pause(executor_);
  const auto begun = std::chrono::steady_clock::now();
  while (sandbox.calls > 0 && std::chrono::steady_clock::now() < begun + kCallsEndWithin) {
    // What is left are answers on their way to slow clients: the backend itself is done with them.
    if (sandbox.kills.empty() && sandbox.ports.empty() &&
        std::chrono::steady_clock::now() > begun + kAnswersEndWithin)
      break;
    const auto kills = sandbox.kills;
    for (auto* kill : kills) (*kill)();
    const auto ports = sandbox.ports;
    for (auto* cut : ports) (*cut)("the sandbox was ended", false);
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
  throw no_sandbox(wanted.agent);
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

// Asks the host that has it open. If that host does not have it, `open_in` is null afterwards.
asio::awaitable<void> Sandboxes::close_in(Sandbox& sandbox, std::shared_ptr<BackendChannel> channel,
                                          const std::string& request_id) {
  end_watches_of(sandbox, WatchEnd::kSandboxEnded);
  ipc::CloseCall call;
  call.call.request_id = request_id;
  call.sandbox_id = sandbox.row.sandbox_id;
  call.mode = sandbox.closing.value_or(ISOGATE_CLOSE_STOP);
  const ipc::Reply reply = co_await channel->call(std::move(call));
  if (reply.status == ISOGATE_NO_SANDBOX || !channel->connected()) sandbox.open_in.reset();
  if (reply.status != ISOGATE_OK) throw from_backend({reply.status, reply.os_errno, reply.message});
}

// False: its backend has nothing of it.
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
  call.image = sandbox.row.image;
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

const Sandbox* Sandboxes::known(const std::string& id) const {
  const auto found = sandboxes_.find(id);
  return found != sandboxes_.end() && found->second->known ? found->second.get() : nullptr;
}

std::vector<const Sandbox*> Sandboxes::of(const std::string& tenant) const {
  std::vector<const Sandbox*> out;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (sandbox->known && sandbox->row.tenant == tenant) out.push_back(sandbox.get());
  }
  return out;
}

asio::awaitable<void> Sandboxes::look_at_disks(std::string tenant) {
  constexpr std::chrono::seconds kPatience{1};
  if (!looking_at_disks_.insert(tenant).second) co_return;  // behind a slow backend: what is known has to do
  const auto done = std::make_shared<Event>(executor_);
  asio::co_spawn(executor_, ask_for_disks(tenant), [this, tenant, done](const std::exception_ptr&) {
    looking_at_disks_.erase(tenant);
    done->set();
  });
  co_await done->wait_for(kPatience);
}

asio::awaitable<void> Sandboxes::ask_for_disks(std::string tenant) {
  constexpr size_t kMost = 1000;
  std::vector<std::shared_ptr<Sandbox>> open;
  for (const auto& [id, sandbox] : sandboxes_) {
    const bool wanted = sandbox->known && (tenant.empty() || sandbox->row.tenant == tenant);
    if (wanted && sandbox->open_in != nullptr && !sandbox->changing && open.size() < kMost)
      open.push_back(sandbox);
  }
  for (const auto& sandbox : open) {
    const auto channel = sandbox->open_in;
    if (channel == nullptr || !channel->open() || sandbox->changing) continue;
    (void)co_await ask_for_disk(*sandbox, channel);
  }
}

// How much it may have, 0: as much as there is. None: it was not told in time.
asio::awaitable<std::optional<uint64_t>> Sandboxes::ask_for_disk(Sandbox& sandbox,
                                                                 std::shared_ptr<BackendChannel> channel) {
  ipc::FileCall call;
  call.call.request_id = "disk-use";
  call.verb = ipc::FileVerb::kDiskUse;
  call.sandbox_id = sandbox.row.sandbox_id;
  auto limit = Cancel::make(executor_);
  if (!limit) co_return std::nullopt;
  (*limit)->fire_after(kDiskPatience);
  const ipc::Reply reply = co_await channel->call(std::move(call), *limit);
  if (const auto* use = std::get_if<ipc::DiskUse>(&reply.value)) {
    sandbox.disk = *use;
    co_return use->limit_bytes;
  }
  if (reply.status != ISOGATE_UNSUPPORTED) co_return std::nullopt;
  sandbox.disk.reset();
  co_return 0;
}

// Before a sandbox may have this much: whether all that its tenant's sandboxes may have stays within the
// tenant's limit. Throws ApiError. What cannot be summed is too much.
void Sandboxes::check_disk_of_tenant(const Sandbox& sandbox, std::optional<uint64_t> limit) const {
  const auto before = sandbox.row.disk_limit_bytes;
  if (most_disk_per_tenant_ == 0) return;
  const auto refuse = [&](const std::string& why) {
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "this tenant's sandboxes may have " +
                              std::to_string(most_disk_per_tenant_ >> 20) +
                              " MiB of disk together (limits.max_disk_mb_per_tenant), and " + why};
  };
  if (!limit)
    throw ApiError{
        .code = Code::kBackendUnavailable,
        .message = "backend `" + sandbox.row.backend + "` does not say how much disk this sandbox may have",
        .retry_after_sec = 1};
  if (*limit == 0)
    refuse("backend `" + sandbox.row.backend + "` sets this one no limit: configure limits.disk_mb of it");
  // One that is there goes on; a limit that grew is another matter.
  if (sandbox.row.was_accepted() && (before.value_or(0) == 0 || *limit <= *before)) return;
  uint64_t others = 0;
  for (const auto& [id, other] : sandboxes_) {
    if (other.get() == &sandbox || other->row.tenant != sandbox.row.tenant) continue;
    const auto has = other->row.disk_limit_bytes;
    if (!has && !other->row.was_accepted()) continue;
    if (has && *has == 0)
      refuse("that of agent `" + printable(other->row.agent_id, 70) +
             "` has no limit: use it once more, or end it");
    others += has.value_or(*limit);  // of an older isogate: as much as this one, till it is opened again
  }
  if (*limit > most_disk_per_tenant_ || others > most_disk_per_tenant_ - *limit)
    refuse("the others have " + std::to_string(others >> 20) + " MiB, this one would have " +
           std::to_string(*limit >> 20) + "; end some with DELETE /sandboxes/{agent_id}?purge=true");
}

std::map<std::string, Sandboxes::DiskTotal> Sandboxes::disk_totals(const std::string& tenant) const {
  std::map<std::string, DiskTotal> totals;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!sandbox->known || !sandbox->disk || (!tenant.empty() && sandbox->row.tenant != tenant)) continue;
    DiskTotal& total = totals[sandbox->row.tenant];
    total.used_bytes += sandbox->disk->used_bytes;
    total.limit_bytes += sandbox->disk->limit_bytes;
  }
  return totals;
}

void Sandboxes::kill_all() {
  for (const auto& [id, sandbox] : sandboxes_) {
    const auto kills = sandbox->kills;
    for (auto* kill : kills) (*kill)();
    const auto ports = sandbox->ports;
    for (auto* cut : ports) (*cut)("the gateway is shutting down", false);
  }
}

void Sandboxes::end_watches(WatchEnd why) {
  for (const auto& [id, sandbox] : sandboxes_) end_watches_of(*sandbox, why);
}

void Sandboxes::cut_ports(const std::string& why) {
  for (const auto& [id, sandbox] : sandboxes_) {
    const auto ports = sandbox->ports;
    for (auto* cut : ports) (*cut)(why, true);
  }
}

size_t Sandboxes::port_connections() const {
  size_t all = 0;
  for (const auto& [id, sandbox] : sandboxes_) all += sandbox->ports.size();
  return all;
}

Sandboxes::Opener Sandboxes::opener(Backend& backend) {
  if (!backend.channel || !backend.settled || !backend.probe) throw is_restarting(backend.config.name);
  return {backend.channel->hold(), backend.config, *backend.probe};
}

// `how`: ISOGATE_OPEN_RUNNING_ONLY or 0.
asio::awaitable<void> Sandboxes::open(Sandbox& sandbox, Backend& backend, const Wanted& wanted,
                                      uint32_t how) {
  const Opener by = opener(backend);
  const bool for_a_call = how != ISOGATE_OPEN_RUNNING_ONLY;
  if (const auto error = state_.last_error(); error && for_a_call) {
    throw ApiError{
        .code = Code::kQuotaExceeded,
        .message = "no sandbox is opened while the state store cannot be written: " + error->message};
  }
  std::optional<CallGate::Ticket> ticket;
  if (for_a_call) ticket.emplace(backend.gate.enter(wanted.tenant));
  co_await close_before(sandbox, by);
  if (!sandbox.known) co_await record_intent(sandbox, by, wanted);
  const ipc::Opened opened = co_await open_unused(sandbox, backend, by, wanted, how);
  sandbox.runs = (opened.flags & ISOGATE_SANDBOX_RUNS) != 0;
  std::exception_ptr failure;
  try {
    co_await check_evidence(sandbox, by, opened, wanted.request_id);
    std::optional<uint64_t> disk;
    if (for_a_call) disk = co_await ask_for_disk(sandbox, by.channel->shared_from_this());
    co_await accept(sandbox, by, opened, for_a_call, disk);
  } catch (...) {
    failure = std::current_exception();
  }
  if (failure) {
    co_await undo_open(sandbox, by, opened, wanted.request_id);
    std::rethrow_exception(failure);
  }
  sandbox.open_in = sandbox.runs ? by.channel : by.channel->shared_from_this();
  log::info(for_a_call ? "sandbox_opened" : "sandbox_reattached",
            {{"sandbox_id", sandbox.row.sandbox_id},
             {"tenant", sandbox.row.tenant},
             {"agent_id", sandbox.row.agent_id},
             {"backend", by.config.name},
             {"isolation", isolation_name(opened.isolation)},
             {"attached", (opened.flags & ISOGATE_SANDBOX_ATTACHED) != 0}});
}

// Before the backend is asked: what a crash leaves half-made is then known at the next start.
asio::awaitable<void> Sandboxes::record_intent(Sandbox& sandbox, const Opener& by, const Wanted& wanted) {
  SandboxRow& row = sandbox.row;
  row.backend = by.config.name;
  row.image = wanted.image.value_or("");
  row.expires_ms = wanted.expires_ms;
  row.e2b_record = wanted.e2b_record;
  if (!row.e2b_record.empty()) e2b_agents_[row.agent_id] = row.sandbox_id;
  row.state = SandboxRow::State::kOpening;
  row.created_ms = row.last_used_ms = wall_clock_ms();
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
                                        bool for_a_call, std::optional<uint64_t> disk) {
  SandboxRow& row = sandbox.row;
  const SandboxRow before = row;
  if (for_a_call) check_disk_of_tenant(sandbox, disk);
  if (!disk) disk = row.disk_limit_bytes;
  const bool changed = row.backend != by.config.name || row.handle != opened.handle ||
                       row.isolation != opened.isolation || row.uid != opened.uid ||
                       row.disk_limit_bytes != disk || row.state != SandboxRow::State::kActive;
  row.backend = by.config.name;
  row.handle = opened.handle;
  row.isolation = opened.isolation;
  row.uid = opened.uid;
  row.disk_limit_bytes = disk;
  row.state = SandboxRow::State::kActive;
  if (for_a_call) row.last_used_ms = wall_clock_ms();
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
  // One that was made just now, for nobody yet, leaves nothing. Without that flag it may be another's.
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
    end_watches_of(sandbox, WatchEnd::kReloaded);
    ipc::CloseCall call;
    call.call.request_id = "hand-over";
    call.sandbox_id = sandbox.row.sandbox_id;
    call.mode = ISOGATE_CLOSE_DETACH;
    const ipc::Reply reply = co_await before->call(std::move(call));
    const bool closed = reply.status == ISOGATE_OK || reply.status == ISOGATE_NO_SANDBOX;
    if (!closed && before->connected()) {
      throw ApiError{.code = Code::kBackendUnavailable,
                     .message = "the backend host from before the reload has not released this sandbox",
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
  call.image = sandbox.row.image;
  call.limits = by.config.sandbox_limits;
  const bool for_a_call = how != ISOGATE_OPEN_RUNNING_ONLY;  // what fails in the background costs no call
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
  sandbox.in_force = Limits::of(evidence);
  sandbox.ports_refused = ports_obstacle(evidence, by.probe.locality, host_namespaces_).value_or("");
  const auto mismatch = evidence_mismatch(evidence, claim, host_namespaces_);
  if (!mismatch) co_return;
  log::error("evidence_mismatch", {{"sandbox_id", sandbox.row.sandbox_id},
                                   {"backend", by.config.name},
                                   {"mismatch", *mismatch + why_not}});
  throw ApiError{.code = Code::kBackendUnavailable,
                 .message = "the sandbox was closed: its evidence does not match the claim of backend `" +
                            by.config.name + "`: " + *mismatch + why_not};
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

namespace {

constexpr size_t kAtOnce = 8;  // less than what a host keeps beside execs and file calls
constexpr int kTries = 6;
constexpr size_t kMoreThanKnown = 1 << 16;  // that a backend may enumerate
constexpr size_t kUnknownListed = 16;
constexpr seconds kLook{1};

seconds pause_after(int tries) { return seconds(1 << tries); }

using Ids = std::unordered_set<std::string>;

// The ids of what runs; nullopt: it could not be found out.
asio::awaitable<std::optional<Ids>> running_in(std::shared_ptr<BackendChannel> channel, size_t most) {
  std::function<ipc::Call(Fd)> ask = [](Fd out) {
    ipc::EnumerateCall call;
    call.call.request_id = "re-attach";
    call.out = std::move(out);
    return ipc::Call(std::move(call));
  };
  Ids running;
  std::function<void(ipc::Found)> take = [&running](ipc::Found found) {
    if ((found.flags & ISOGATE_SANDBOX_RUNS) != 0) running.insert(std::move(found.sandbox_id));
  };
  const Result<void> listed = co_await enumerate(channel, std::move(ask), most, std::move(take));
  if (listed.ok()) co_return running;
  log::warn("sandboxes_not_enumerated", {{"reason", listed.error().message}});
  co_return std::nullopt;
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
  const ipc::Reply reply = co_await channel->call(std::move(call));
  co_return reply.status == ISOGATE_OK&& bytes_in(pipe.native_handle()) == 0u;
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

asio::awaitable<void> Sandboxes::reattach(std::shared_ptr<Backend> backend) {
  const auto channel = backend->channel;
  asio::steady_timer pause(executor_);
  std::optional<std::vector<Left>> left;
  for (int tries = 0; backend->channel == channel;) {
    const bool serves = backend->probe && backend->probe->verdict != ISOGATE_PROBE_UNAVAILABLE;
    if (serves) {
      const Counted counted(reattaching_);
      if (!left) co_await end_never_accepted(backend);
      if (!left) left = co_await look_what_runs(*backend);
      if (!left) tries = std::min(tries + 1, kTries);
      if (left) co_await reattach_due(backend, *left);
    }
    if (left && left->empty()) co_return;
    pause.expires_after(left ? kLook : pause_after(tries));
    co_await pause.async_wait(asio::use_awaitable);
  }
}

// What a crash left between its intent and its acceptance, or in the middle of its purge. Nothing of a tenant
// ran in the former: what holds no file is removed, the rest is stopped and found again by who calls.
asio::awaitable<void> Sandboxes::end_never_accepted(std::shared_ptr<Backend> backend) {
  std::vector<std::shared_ptr<Sandbox>> due;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!sandbox->left_over || sandbox->row.backend != backend->config.name) continue;
    sandbox->left_over = false;  // tried once: what ends its host would end it again and again
    if (sandbox->known && !sandbox->row.was_accepted() && !sandbox->open_in) due.push_back(sandbox);
  }
  for (const auto& sandbox : due) {
    const auto now =
        sandboxes_.find(sandbox->row.sandbox_id);  // its agent may have ended it and begun another
    if (!sandbox->known || now == sandboxes_.end() || now->second != sandbox) continue;
    if (!backend->channel || sandbox->changing || sandbox->calls != 0 || sandbox->open_in) continue;
    const Wanted wanted{
        .tenant = sandbox->row.tenant, .agent = sandbox->row.agent_id, .request_id = "clean-up"};
    std::string why_not;
    try {
      if (!sandbox->closing) {
        const Change changing(sandbox);
        const bool there = co_await attach_to_close(*sandbox, *backend, wanted.request_id);
        const bool empty = !there || co_await has_no_files(*sandbox, sandbox->open_in);
        sandbox->closing = empty ? ISOGATE_CLOSE_PURGE : ISOGATE_CLOSE_STOP;
      }
      co_await finish_closing(sandbox, wanted);
    } catch (const ApiError& error) {
      why_not = error.message;
    } catch (const std::exception& error) {
      why_not = error.what();
    }
    if (!why_not.empty()) {
      log::warn("sandbox_not_ended", {{"sandbox_id", sandbox->row.sandbox_id}, {"reason", why_not}});
      continue;
    }
    log::info("sandbox_never_accepted_ended", {{"sandbox_id", sandbox->row.sandbox_id}});
    if (!sandbox->known) continue;
    sandbox->known = false;
    state_.remove_sandbox(sandbox->row.sandbox_id, {});
    forget_if_unknown(std::string(sandbox->row.sandbox_id));
  }
}

asio::awaitable<std::optional<std::vector<Sandboxes::Left>>> Sandboxes::look_what_runs(
    const Backend& backend) {
  const auto channel = backend.channel;
  const auto running = co_await running_in(channel, most_ + std::min(most_, kMoreThanKnown));
  if (!running) co_return std::nullopt;
  std::vector<Left> left;
  for (const auto& [id, sandbox] : sandboxes_) {
    if (!sandbox->known || !sandbox->row.was_accepted() || sandbox->closing) continue;
    if (sandbox->row.backend != backend.config.name || sandbox->open_in == channel) continue;
    if (running->contains(id) || (sandbox->runs && sandbox->open_in)) left.push_back({.sandbox = sandbox});
  }
  size_t unknown = 0;
  for (const std::string& id : *running)
    if (!sandboxes_.contains(id) && ++unknown <= kUnknownListed)
      log::warn("sandbox_runs_unknown", {{"backend", backend.config.name}, {"sandbox_id", id}});
  if (unknown > kUnknownListed)
    log::warn("sandboxes_run_unknown", {{"backend", backend.config.name}, {"count", unknown}});
  if (!left.empty())
    log::info("sandboxes_run_already", {{"backend", backend.config.name}, {"count", left.size()}});
  co_return left;
}

asio::awaitable<void> Sandboxes::reattach_due(std::shared_ptr<Backend> backend, std::vector<Left>& left) {
  const auto round = std::make_shared<Round>(executor_);
  for (Left& each : left) {
    const bool busy = backend->channel && busy_before(*each.sandbox, *backend->channel);
    if (!busy && !each.sandbox->changing && each.due <= steady_clock::now()) round->todo.push_back(&each);
  }
  round->working = std::min(kAtOnce, round->todo.size());
  if (round->working == 0) co_return;
  for (size_t i = round->working; i > 0; --i)
    asio::co_spawn(executor_, reattach_some(backend, round), asio::detached);
  co_await round->end.wait();
  std::erase_if(left, [](const Left& each) { return each.done; });
}

asio::awaitable<void> Sandboxes::reattach_some(std::shared_ptr<Backend> backend,
                                               std::shared_ptr<Round> round) {
  while (round->next < round->todo.size()) co_await reattach_one(*backend, *round->todo[round->next++]);
  if (--round->working == 0) round->end.set();
}

// A call that comes meanwhile waits, and opens it itself if need be.
asio::awaitable<void> Sandboxes::reattach_one(Backend& backend, Left& left) {
  Sandbox& sandbox = *left.sandbox;
  if (!backend.channel || sandbox.changing || busy_before(sandbox, *backend.channel)) co_return;
  left.done = !sandbox.known || sandbox.closing || sandbox.open_in == backend.channel;
  if (left.done) co_return;
  const Change changing(left.sandbox);
  const Wanted wanted{.tenant = sandbox.row.tenant, .agent = sandbox.row.agent_id, .request_id = "re-attach"};
  std::string why_not;
  try {
    co_await open(sandbox, backend, wanted, ISOGATE_OPEN_RUNNING_ONLY);
    left.done = true;
  } catch (const ApiError& error) {
    left.done = error.permanent;
    why_not = error.message;
  } catch (const std::exception& error) {
    why_not = error.what();
  }
  const bool warn = ++left.tries == kTries;  // it is tried on, once a minute
  left.due = steady_clock::now() + pause_after(std::min(left.tries, kTries));
  if (sandbox.used == steady_clock::time_point{}) sandbox.used = steady_clock::now();
  if (!why_not.empty() && (left.done || warn)) {
    sandbox.open_in.reset();
    log::warn("sandbox_not_reattached", {{"sandbox_id", sandbox.row.sandbox_id}, {"reason", why_not}});
  }
}

void Sandboxes::release_removed() {
  for (const auto& [id, sandbox] : sandboxes_)
    if (sandbox->open_in && !backends_.find(sandbox->row.backend))
      sandbox->open_in = sandbox->open_in->shared_from_this();  // known, and no longer held
}

// What is idle in one backend: an engine that is slow holds up its own sandboxes only.
struct Sandboxes::IdleRound {
  std::vector<std::shared_ptr<Sandbox>> idle;
  size_t next = 0, working = 0;
};

asio::awaitable<void> Sandboxes::end_expired() {
  asio::steady_timer timer(executor_);
  std::map<std::string, steady_clock::time_point> again;  // by sandbox_id: not ended before
  size_t ending = 0;
  for (;;) {
    timer.expires_after(seconds(1));
    co_await timer.async_wait(asio::use_awaitable);
    std::erase_if(again, [&](const auto& one) { return !sandboxes_.contains(one.first); });
    const int64_t now = steady_date_ms();
    std::vector<std::shared_ptr<Sandbox>> expired;  // one that ends at once leaves sandboxes_ meanwhile
    for (const auto& [id, sandbox] : sandboxes_) {
      const int64_t expires = sandbox->row.expires_ms;
      if (expires != 0 && expires <= now && sandbox->known) expired.push_back(sandbox);
    }
    for (const auto& sandbox : expired) {
      const SandboxRow& row = sandbox->row;
      const std::string& id = row.sandbox_id;
      steady_clock::time_point& next = again[id];
      if (next > steady_clock::now() || ending >= kExpiredAtOnce) continue;
      next = steady_clock::time_point::max();
      ++ending;
      asio::co_spawn(executor_, end(row.tenant, row.agent_id, true, "expired"),
                     [&, id = id](const std::exception_ptr& failure) {
                       --ending;
                       again[id] = steady_clock::now() + kExpiredAgain;
                       if (failure)
                         log::warn("sandbox_not_ended", {{"sandbox_id", id}, {"reason", "expired"}});
                     });
    }
  }
}

std::shared_ptr<Sandbox> Sandboxes::find_e2b_sandbox(const std::string& agent) const {
  const auto found = e2b_agents_.find(agent);
  if (found == e2b_agents_.end()) return nullptr;
  const auto sandbox = sandboxes_.find(found->second);
  return sandbox == sandboxes_.end() || !sandbox->second->known ? nullptr : sandbox->second;
}

std::vector<std::shared_ptr<Sandbox>> Sandboxes::e2b_sandboxes() const {
  std::vector<std::shared_ptr<Sandbox>> all;
  for (const auto& [agent, id] : e2b_agents_)
    if (auto sandbox = find_e2b_sandbox(agent)) all.push_back(std::move(sandbox));
  return all;
}

asio::awaitable<void> Sandboxes::set_e2b_record(std::shared_ptr<Sandbox> sandbox, int64_t expires_ms,
                                                std::string e2b_record) {
  if (!sandbox->known || sandbox->closing) throw no_sandbox(sandbox->row.agent_id);
  const SandboxRow before = sandbox->row;
  sandbox->row.expires_ms = expires_ms;
  sandbox->row.e2b_record = std::move(e2b_record);
  if (const auto recorded = co_await commit(*sandbox); !recorded) {
    sandbox->row.expires_ms = before.expires_ms;
    sandbox->row.e2b_record = before.e2b_record;
    throw ApiError{.code = Code::kQuotaExceeded,
                   .message = "the sandbox cannot be recorded: " + recorded.error().message};
  }
}

std::shared_ptr<Sandbox> Sandboxes::find(const std::string& tenant, const std::string& agent) const {
  const auto found = sandboxes_.find(sandbox_id(instance_, tenant, agent));
  return found == sandboxes_.end() || !found->second->known ? nullptr : found->second;
}

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
      round->working = std::min(kIdleAtOnce, round->idle.size());
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
