#include "gateway/front/backends/backends.h"

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <nlohmann/json.hpp>
#include <thread>

#include "gateway/front/base/alarm.h"
#include "gateway/front/http/json_answer.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

constexpr int kRemoteProbes = 3;
constexpr std::chrono::seconds kRemoteProbeGap{2};
constexpr std::chrono::seconds kLostProbeGap{2}, kLostFor{60};
constexpr std::chrono::milliseconds kNewHostsCome{300};
constexpr const char* kBeforeReload = "none could, before the reload";

bool is_available(const ipc::Probe& probe) { return probe.verdict != ISOGATE_PROBE_UNAVAILABLE; }

uint32_t starts_at_a_time() { return std::max(4u, 2 * std::thread::hardware_concurrency()); }

std::string verdicts_json(const Decision& decision) {
  nlohmann::ordered_json tried = nlohmann::ordered_json::array();
  for (const auto& verdict : decision.verdicts)
    tried.push_back({{"backend", verdict.name}, {"reason", verdict.eligible ? "eligible" : verdict.reason}});
  return json_text({{"tried", std::move(tried)}});
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

ApiError without_host(const Backend& backend) {
  if (backend.state != BackendState::kFailed && backend.state != BackendState::kQuarantined)
    return is_restarting(backend.config.name);
  return {.code = Code::kBackendUnavailable,
          .message = "backend `" + backend.config.name + "` is down: " + printable(backend.reason, 1000),
          .permanent = true};
}

Backends::Backends(asio::any_io_executor executor, const Config& config)
    : executor_(std::move(executor)),
      policy_(policy_of(config)),
      interval_sec_(config.probe_interval_sec),
      limits_(config.limits),
      news_(executor_),
      after_reload_(executor_) {
  for (const BackendConfig& each : config.backends) {
    backends_.push_back(std::make_shared<Backend>(executor_));
    backends_.back()->config = each;
  }
}

void Backends::reconfigure(const Config& config) {
  policy_ = policy_of(config);
  interval_sec_ = config.probe_interval_sec;
  limits_ = config.limits;
  std::vector<std::shared_ptr<Backend>> next;
  for (const BackendConfig& each : config.backends) {
    auto found = find(each.name);
    if (!found) found = std::make_shared<Backend>(executor_);
    found->config = each;
    found->configured = true;
    if (found->hello) take_limits(*found);
    next.push_back(std::move(found));
  }
  for (auto& old : backends_) {
    if (std::find(next.begin(), next.end(), old) != next.end()) continue;
    old->configured = false;
    if (old->channel) std::exchange(old->channel, nullptr)->retire();
  }
  backends_ = std::move(next);
  news_.notify();
  if (!reported_.empty()) reported_ = kBeforeReload;  // whatever follows is news
  after_reload_.set(kNewHostsCome, [this] { report_choice(); });
}

std::shared_ptr<Backend> Backends::find(std::string_view name) const {
  for (const auto& backend : backends_) {
    if (backend->config.name == name) return backend;
  }
  return nullptr;
}

void Backends::take_limits(Backend& backend) const {
  const ipc::Hello& hello = *backend.hello;
  const auto share_of = [this](uint32_t all) { return static_cast<uint32_t>(limits_.tenant_share(all)); };
  backend.file_calls.resize(hello.max_file_calls, share_of(hello.max_file_calls));
  backend.durable_writes.resize_durable(hello.max_file_calls, share_of(hello.max_file_calls));
  backend.watches.resize(hello.max_watches, share_of(hello.max_watches));
  backend.ports.resize(hello.max_connections, share_of(hello.max_connections));
  if (backend.channel)
    backend.channel->limit_sandboxes(hello.max_sandboxes, limits_.tenant_share(hello.max_sandboxes));
  // Elsewhere than on this machine starts do not wait for its processors; one tenant shares them with nobody.
  const bool here = hello.locality <= ISOGATE_LOCALITY_DAEMON;
  backend.starts->resize(here && limits_.tenant_share_percent < 100 ? starts_at_a_time()
                                                                    : StartWindow::kUnbounded);
}

void Backends::host_up(std::string_view name, HostIdentity identity, Fd socket) {
  const uint64_t generation = identity.generation;
  const auto backend = find(name);
  if (!backend) return;
  // Not forgotten with a host that crashes: an outage is passing, whether or not the host survives it.
  if (backend->good_settings != identity.settings) backend->good.reset();
  const bool same = backend->channel && backend->channel->identity().settings == identity.settings;
  if (!same) backend->breakers.recovered();
  if (backend->channel) {  // what is known of the one before holds till the new one is probed
    backend->channel->retire();
  } else {
    backend->probe.reset();
    backend->hello.reset();
  }
  identity.backend = backend->config.name;
  backend->channel = std::make_shared<BackendChannel>(executor_, std::move(socket), std::move(identity));
  backend->state = BackendState::kUp;
  if (backend->generation != 0 && generation > backend->generation) ++backend->restarts;
  backend->generation = generation;
  backend->settled = false;
  backend->reason.clear();
  const auto channel = backend->channel.get();  // outlives its callbacks
  channel->start(
      [this, backend, generation](const ipc::Hello& hello) {
        if (backend->generation != generation) return;
        backend->hello = hello;
        take_limits(*backend);
        if (on_hello_) on_hello_();
        asio::co_spawn(executor_, first_probes(backend, generation), asio::detached);
      },
      [this, backend, generation, channel] {
        const std::string& stuck = channel->given_up();
        if (!stuck.empty() && on_stuck_) on_stuck_(backend->config.name, *channel);
        if (backend->generation != generation || !backend->configured || !backend->channel) return;
        host_down(backend->config.name, generation, stuck.empty() ? "its host ended" : stuck,
                  BackendState::kDown);
      });
}

void Backends::host_down(std::string_view name, uint64_t generation, std::string reason, BackendState state) {
  const auto backend = find(name);
  if (!backend || generation < backend->generation) return;
  if (state != BackendState::kFailed && !stopping_) {  // the supervisor has logged why it failed
    log::warn("backend_down",
              {{"backend", name}, {"reason", reason}, {"quarantined", state == BackendState::kQuarantined}});
  }
  backend->state = state;
  backend->reason = std::move(reason);
  backend->probe.reset();
  if (const auto channel = std::exchange(backend->channel, nullptr)) {
    // A process that it has forked may hold its socket. An earlier host finishes its calls.
    if (channel->identity().generation == generation)
      channel->host_ended();
    else
      channel->retire();
  }
  backend->settled = true;
  news_.notify();
  report_choice();
}

asio::awaitable<std::optional<ipc::Probe>> Backends::ask(std::shared_ptr<Backend> backend) const {
  const auto channel = backend->channel;
  if (!channel) co_return std::nullopt;
  ipc::ProbeCall call;
  const ipc::Reply reply = co_await channel->call(std::move(call));
  if (channel != backend->channel) co_return std::nullopt;
  if (const auto* probe = std::get_if<ipc::Probe>(&reply.value);
      probe != nullptr && reply.status == ISOGATE_OK)
    co_return *probe;
  ipc::Probe failed;
  failed.detail = "its probe failed: " + reply.message;
  co_return failed;
}

asio::awaitable<void> Backends::probe_once(std::shared_ptr<Backend> backend) {
  auto probe = co_await ask(backend);
  const bool was_available = backend->probe && is_available(*backend->probe);
  if (probe && !is_available(*probe) && was_available) probe = co_await ask(backend);
  if (probe) take_probe(*backend, *probe);
}

void Backends::take_probe(Backend& backend, const ipc::Probe& probe) {
  const auto now = std::chrono::steady_clock::now();
  const bool available = is_available(probe);
  const bool news = !backend.probe || backend.probe->verdict != probe.verdict;
  if (news || backend.probe->detail != probe.detail) {
    const auto level = available ? log::Level::kInfo : log::Level::kWarn;
    log::write(level, "backend_probed",
               {{"backend", backend.config.name},
                {"verdict", verdict_name(probe.verdict)},
                {"isolation", isolation_name(probe.isolation)},
                {"detail", probe.detail}});
  }
  const bool recovered =  // a new host, or one that was not available
      available && (!backend.probe || !is_available(*backend.probe));
  backend.probed = now;
  if (!available && news) backend.lost = now;
  backend.probe = probe;
  if (available) {
    backend.good = probe;
    backend.good_settings = backend.channel->identity().settings;
    if (known_isolation(probe.isolation)) backend.seen = probe.isolation;
  }
  if (recovered) backend.breakers.recovered();
}

asio::awaitable<void> Backends::first_probes(std::shared_ptr<Backend> backend, uint64_t generation) {
  const int tries = policy_.require_remote ? kRemoteProbes : 1;
  for (int i = 0; i < tries; ++i) {
    if (i > 0) co_await sleep_for(executor_, kRemoteProbeGap);
    if (backend->generation != generation || !backend->channel) break;
    co_await probe_once(backend);
    if (backend->probe && is_available(*backend->probe)) break;
  }
  if (backend->generation != generation || !backend->channel) co_return;
  backend->settled = true;
  if (on_probed_) on_probed_(backend);
  news_.notify();
  report_choice();
}

asio::awaitable<void> Backends::probe_loop() {
  for (;;) {
    co_await sleep_for(executor_, std::min(std::chrono::seconds(interval_sec_), kLostProbeGap));
    const auto all = backends_;
    for (const auto& backend : all) {
      if (backend->channel && backend->hello && backend->probe && !backend->probing && is_due(*backend))
        asio::co_spawn(executor_, probe_again(backend), asio::detached);
    }
  }
}

bool Backends::is_due(const Backend& backend) const {
  const auto now = std::chrono::steady_clock::now();
  const auto interval = std::chrono::seconds(interval_sec_);
  const bool lost = !is_available(*backend.probe) && now < backend.lost + kLostFor;
  return now >= backend.probed + (lost ? std::min(interval, kLostProbeGap) : interval);
}

asio::awaitable<void> Backends::probe_again(std::shared_ptr<Backend> backend) {
  backend->probing = true;
  co_await probe_once(backend);
  backend->probing = false;
  news_.notify();
  report_choice();
}

bool Backends::is_settled() const {
  return std::all_of(backends_.begin(), backends_.end(),
                     [](const auto& backend) { return backend->settled; });
}

bool Backends::is_settled(const SelectRequest& request) const {
  const std::optional<std::string>& only = request.pinned ? request.pinned : request.backend;
  const auto unsettled = std::find_if(backends_.begin(), backends_.end(), [&](const auto& backend) {
    return !backend->settled && (!only || backend->config.name == *only);
  });
  if (unsettled == backends_.end()) return true;
  const auto chosen = decide(request).chosen;
  return std::any_of(backends_.begin(), unsettled,
                     [&](const auto& backend) { return backend->config.name == chosen; });
}

void Backends::report_choice() {
  if (stopping_ || !is_settled()) return;
  const Decision decision = decide({});
  const std::string reason = decision.chosen ? "" : decision.message;
  if (reason == std::exchange(reported_, reason)) return;
  if (decision.chosen)
    log::info("backend_eligible", {{"backend", *decision.chosen}});
  else
    log::warn("no_backend_eligible", {{"reason", reason}});
}

asio::awaitable<void> Backends::settled(std::chrono::nanoseconds limit) {
  co_await news_.until([this] { return is_settled(); }, limit);
}

asio::awaitable<void> Backends::settled(std::chrono::nanoseconds limit, SelectRequest request) {
  request.capabilities = 0;
  co_await news_.until([&] { return is_settled(request); }, limit);
}

Decision Backends::decide(const SelectRequest& request) const {
  const auto now = std::chrono::steady_clock::now();
  std::vector<Candidate> candidates;
  candidates.reserve(backends_.size());
  for (const auto& backend : backends_) {
    const BackendConfig& config = backend->config;
    const Breaker& breaker = backend->breakers.of(request.tenant);
    const auto best = backend->hello ? std::optional(backend->hello->isolation) : std::nullopt;
    candidates.push_back({.name = config.name,
                          .wanted = standing_of(config),
                          .configured = backend->configured,
                          .hello_seen = backend->hello.has_value(),
                          .best = best,
                          .state = backend->state,
                          .reason = backend->reason,
                          .probe = backend->probe,
                          .good = backend->good,
                          .seen = backend->seen,
                          .breaker_open = breaker.blocked(now),
                          .breaker_reason = breaker.reason(now)});
  }
  return select(candidates, policy_, request);
}

void Backends::judge(Backend& backend, const SandboxRow& sandbox, const ipc::Reply& reply) {
  const bool up = backend.channel && backend.channel->open();
  if (reply.status == ISOGATE_LOST && up) return;  // one call went wrong, and its program may be why
  if (reply.status == ISOGATE_OK) backend.breakers.succeeded(sandbox.tenant);
  if (reply.status != ISOGATE_UNAVAILABLE && reply.status != ISOGATE_LOST) return;
  backend.probed = {};  // the next probe is due
  const auto now = std::chrono::steady_clock::now();
  if (!backend.breakers.failed(sandbox.tenant, sandbox.sandbox_id, now, reply.message)) return;
  log::warn("breaker_open", {{"backend", backend.config.name},
                             {"tenant", sandbox.tenant},
                             {"reason", backend.breakers.of(sandbox.tenant).reason(now)}});
}

}  // namespace isogate::front
