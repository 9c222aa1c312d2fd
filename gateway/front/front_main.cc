#include "gateway/front/front_main.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "gateway/base/budgets.h"
#include "gateway/base/log_left.h"
#include "gateway/base/privileges.h"
#include "gateway/front/api/access.h"
#include "gateway/front/api/port_proxy.h"
#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/base/alarm.h"
#include "gateway/front/control.h"
#include "gateway/front/e2b/listener.h"
#include "gateway/front/exec/long_execs.h"
#include "gateway/front/http/cors.h"
#include "gateway/front/http/server.h"
#include "gateway/front/sidecar.h"
#include "lib/clock.h"
#include "lib/log.h"

namespace isogate {
namespace asio = boost::asio;
using namespace front;

namespace {

constexpr int kControl = 3;
constexpr const char* kUser = "isogate";
constexpr std::chrono::seconds kSettleWithin{15};
constexpr std::chrono::milliseconds kDrainPoll{20};
constexpr const char* kShuttingDown = "the gateway is shutting down";

Result<void> give_up_privileges(bool root) {
  // First: with a capability the kernel compiles the filter, whatever the filters of others take.
  if (auto filtered = install_front_filter({kControl, violation_record}); !filtered) return filtered;
  return root ? become_user(kUser, {}) : stay_same_user();
}

// `kept`: the execs that may go on.
Result<std::unique_ptr<State>> open_state(const std::string& state_dir, std::vector<ExecRow>& kept) {
  State::Options options;
  options.on_health = [](const std::optional<Error>& error) {
    if (error) {
      log::error("state_not_writable", {{"reason", error->message}});
    } else {
      log::info("state_writable", {});
    }
  };
  auto state = State::open(state_dir + "/front/state.db", options);
  if (!state) return state;
  const auto open = (*state)->close_open_execs("gateway_crash", wall_clock_ms());
  if (!open) return open.error();
  for (const ExecRow& exec : *open) {
    if (exec.kept) {
      kept.push_back(exec);
      continue;
    }
    log::warn("exec_outcome_unknown",
              {{"exec_id", exec.exec_id}, {"sandbox_id", exec.sandbox_id}, {"reason", "gateway_crash"}});
  }
  return state;
}

uint64_t descriptors() {
  rlimit files{};
  return ::getrlimit(RLIMIT_NOFILE, &files) == 0 ? files.rlim_cur : RLIM_INFINITY;
}

// A quarter of the descriptors is kept for execs and file calls, so that idle connections cannot take all.
uint32_t connections_of(const LimitsConfig& limits) {
  const uint64_t all = descriptors();
  const uint64_t left = std::max<uint64_t>(all - all / 4, 1);
  if (left >= limits.max_connections) return limits.max_connections;
  log::warn("connections_limited",
            {{"max_connections", limits.max_connections},
             {"admitted", left},
             {"reason", "RLIMIT_NOFILE is " + std::to_string(all) + "; raise it (LimitNOFILE=)"}});
  return static_cast<uint32_t>(left);
}

// Of that quarter: files of output, which an exec keeps when it has ended.
uint64_t spool_files() { return descriptors() / 32; }

// What the server admits.
LimitsConfig admitted(LimitsConfig limits) {
  const uint32_t all = limits.max_connections = connections_of(limits);
  if (limits.max_connections_per_peer == 0)
    limits.max_connections_per_peer = std::max(all - std::max(all / 4, 1u), 1u);
  return limits;
}

// Whole microseconds: three digits are enough, and short in a line.
double ms_between(RequestEnd::Time from, RequestEnd::Time to) {
  if (from == RequestEnd::Time{} || to < from) return 0;
  return std::round(std::chrono::duration<double, std::micro>(to - from).count()) / 1000;
}

// What any peer can send at any rate may be counted.
bool is_counted(const Exchange& exchange, unsigned status) {
  return exchange.principal.key_name.empty() || status == 400 || status == 429;
}

// Whether each certificate of the authorities `before` is in `now`, too.
bool trusts_all(std::string_view now, std::string_view before) {
  constexpr std::string_view kBegin = "-----BEGIN", kEnd = "-----END";
  const std::string lines = "\n" + std::string(now);  // a block begins a line, else OpenSSL ignores it
  for (size_t at = 0; (at = before.find(kBegin, at)) != std::string_view::npos; at += kBegin.size()) {
    const std::string_view block = before.substr(at, before.find(kEnd, at) - at);
    if (lines.find("\n" + std::string(block)) == std::string::npos) return false;
  }
  return true;
}

// The log's line per request. See docs/operations.md for its fields.
void log_request(App& app, const Exchange& exchange, std::string_view operation, const std::string& peer,
                 const RequestEnd& end) {
  const auto answered = end.answered == RequestEnd::Time{} ? end.ended : end.answered;
  if (is_counted(exchange, end.status) && !app.peer_lines.admit(peer, std::to_string(end.status), end.ended))
    return;
  if (!end.refused.empty()) {
    log::record("request", {{"request_id", exchange.request_id},
                            {"peer", log::Own{peer}},
                            {"operation", log::Own{operation}},
                            {"status", end.status},
                            {"refused", end.refused},
                            {"code", log::Own{exchange.error_code}},
                            {"head_ms", ms_between(end.began, end.asked)}});
    return;
  }
  SandboxPtr sandbox;  // only then: it costs a hash
  if (!exchange.fault.empty())
    sandbox = app.sandboxes.records.known(exchange.principal.tenant, exchange.agent);
  log::record("request", {{"request_id", log::Own{exchange.request_id}},
                          {"peer", log::Own{peer}},
                          {"key", log::Own{exchange.principal.key_name}},
                          {"tenant", log::Own{exchange.principal.tenant}},
                          {"agent_id", exchange.agent},
                          {"operation", log::Own{operation}},
                          {"status", end.status},
                          {"complete", end.complete},
                          {"code", log::Own{exchange.error_code}},
                          {"bytes_in", end.bytes_in},
                          {"bytes_out", end.bytes_out},
                          {"head_ms", ms_between(end.began, end.asked)},
                          {"work_ms", ms_between(end.asked, answered)},
                          {"send_ms", ms_between(answered, end.ended)},
                          {"backend", log::Own{sandbox ? sandbox->row.backend : ""}},
                          {"reason", exchange.fault}});
}

// The front's life: from the supervisor's `start` to `drained`.
class Front {
 public:
  Front(StartOrder order, std::unique_ptr<State> state, std::vector<ExecRow> kept,
        Authenticator authenticator, bool root)
      : order_(std::move(order)),
        kept_(std::move(kept)),
        app_(io_.get_executor(), order_.config, std::move(state), std::move(authenticator), root),
        control_(io_.get_executor(), kControl, hooks()) {
    app_.long_execs = std::make_shared<LongExecs>(io_.get_executor());
    app_.e2b = std::make_shared<e2b::ListenerState>();
    app_.memory.set_reclaim([this](const std::string& tenant, uint64_t bytes) {
      return app_.long_execs->forget_oldest(tenant, bytes);
    });
    app_.spool.quota.set_reclaim([this](const std::string& tenant, uint64_t bytes) {
      return app_.long_execs->forget_oldest(tenant, bytes, &LongExec::on_disk);
    });
    app_.spool.files.set_reclaim([this](const std::string& tenant, uint64_t files) {
      return app_.long_execs->forget_oldest(tenant, files, &LongExec::files);
    });
    app_.spool.directory.reset(
        ::open((order_.state_dir + "/front").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!app_.spool.directory) log::error("output_spool_failed", {{"reason", std::strerror(errno)}});
  }

  int run() {
    if (auto loaded = app_.sandboxes.load(); !loaded) {
      control_.send("fatal", loaded.error().message);
      return 1;
    }
    app_.backends.on_hello([this] { set_exec_limits(); });
    app_.backends.on_probed([this](std::shared_ptr<Backend> backend) {
      asio::co_spawn(io_, app_.sandboxes.upkeep.reattach(std::move(backend)), asio::detached);
    });
    app_.backends.on_stuck(
        [this](const std::string& name, const BackendChannel& host) { control_.send_stuck(name, host); });
    set_limits();
    rejoin_kept();
    for (const std::string& listener : order_.listeners) {
      if (listener.starts_with("unix:")) continue;
      const BoundAddress bound = bound_address(listener);
      app_.sandboxes.changes.add_listener(bound.ip, bound.port);
    }
    asio::co_spawn(io_, control_.run(), asio::detached);
    asio::co_spawn(io_, app_.backends.probe_loop(), asio::detached);
    asio::co_spawn(io_, app_.sandboxes.end_expired(), asio::detached);
    asio::co_spawn(io_, app_.sandboxes.upkeep.stop_idle([this] {
      return std::chrono::seconds(app_.config.sandbox_idle_timeout_sec);
    }),
                   asio::detached);
    asio::co_spawn(io_, serve(), asio::detached);
    io_.run();
    app_.peer_lines.flush();
    if (const auto flushed = app_.state->flush(); !flushed)
      log::error("state_flush_failed", {{"reason", flushed.error().message}});
    return exit_code_;
  }

 private:
  void rejoin_kept() {
    for (const ExecRow& row : kept_) {
      const auto sandbox = app_.sandboxes.records.known(row.sandbox_id);
      try {
        if (sandbox == nullptr)
          throw ApiError{.code = Code::kSandboxNotFound, .message = "its sandbox was ended"};
        const auto exec = rejoined_exec(app_, row, sandbox->row);
        asio::co_spawn(io_, exec->run(), asio::detached);
        const auto keep = std::chrono::duration<double>(app_.config.exec.keep_ended_sec);
        app_.long_execs->add(exec, std::chrono::duration_cast<std::chrono::nanoseconds>(keep));
        log::info("exec_looked_for", {{"exec_id", row.exec_id}, {"sandbox_id", row.sandbox_id}});
      } catch (const ApiError& error) {
        ExecSpec spec;
        spec.tenant = row.tenant;
        spec.request_id = row.request_id;
        ExecAnswer answer;
        answer.exec_id = row.exec_id;
        answer.backend = row.backend;
        give_up_exec(app_, spec, answer, error.message);
      }
    }
    kept_.clear();
  }

  ControlHooks hooks() {
    return {.host_up = [this](const std::string& name, HostIdentity identity,
                              Fd socket) { app_.backends.host_up(name, identity, std::move(socket)); },
            .host_down =
                [this](const std::string& name, uint64_t generation, std::string reason, bool quarantined,
                       bool restarting) {
                  using State = BackendState;
                  const State state = quarantined  ? State::kQuarantined
                                      : restarting ? State::kDown
                                                   : State::kFailed;
                  app_.backends.host_down(name, generation, std::move(reason), state);
                },
            .adopt =
                [this](Config config, std::string local_key_sha256, TlsMaterial tls) {
                  return adopt(std::move(config), std::move(local_key_sha256), std::move(tls));
                },
            .adopted = [this] { follow_config(); },
            .drain =
                [this](unsigned deadline) {
                  asio::co_spawn(io_, drain(std::chrono::seconds(deadline)), asio::detached);
                },
            .ended = [this] { stop(drained_ ? 0 : 1); }};
  }

  asio::awaitable<void> serve() {
    const Config& config = app_.config;
    if (!config.wait_for_sidecar.empty()) {
      const auto waited = co_await wait_for_sidecar(
          app_.executor, config.wait_for_sidecar, std::chrono::seconds(config.wait_for_sidecar_timeout_sec));
      if (!waited) {
        control_.send("fatal", waited.error().message);
        stop(1);
        co_return;
      }
    }
    server_.emplace(
        io_, admitted(config.limits),
        ServerHooks{
            .look_at_origin =
                [this](Exchange& exchange) { look_at_origin(exchange, app_.config.cors.origins); },
            .route =
                [this](Exchange& exchange, const ListenerInfo& listener) {
                  if (listener.kind == ListenerKind::kE2b) return e2b::route(app_, exchange);
                  if (!route_to_port(exchange, app_.config.ports.domain)) route_exchange(exchange);
                },
            .authenticate =
                [this](Exchange& exchange, const ListenerInfo& listener, int uid, const std::string& peer) {
                  if (listener.kind == ListenerKind::kE2b)
                    return e2b::authenticate(app_, exchange, listener, peer);
                  authenticate(app_, exchange, listener, uid, peer);
                },
            .handle =
                [this](Exchange& exchange) {
                  check_query(*exchange.route, exchange.query);
                  exchange.memory = ByteShare(app_.memory, exchange.principal.tenant);
                  return exchange.route->handle(app_, exchange);
                },
            .refusal =
                [](const Exchange& exchange, const ListenerInfo& listener, const ApiError& error) {
                  if (listener.kind == ListenerKind::kE2b) return e2b::refusal(exchange, error);
                  return std::pair(error.http_status(), error.body(exchange.request_id));
                },
            .finished = [this](const Exchange& exchange, const std::string& peer,
                               const RequestEnd& end) { finished(exchange, peer, end); },
            .admit_line =
                [this](const std::string& peer, std::string_view event) {
                  return app_.peer_lines.admit(peer, event, std::chrono::steady_clock::now());
                },
            .swept =
                [this] {
                  const auto now = std::chrono::steady_clock::now();
                  app_.peer_lines.tick(now);
                  app_.e2b->watchers.tick(now);
                  control_.keep_reserve();
                },
            .connection_refused =
                [this](std::string_view limit) { app_.metrics.connection_refused(limit); }});
    app_.connections = [this] { return server_->connections(); };
    if (auto set = set_tls(order_.tls, app_.config.tls); !set) {
      control_.send("fatal", set.error().message);
      stop(1);
      co_return;
    }
    for (size_t i = 0; i < order_.listeners.size(); ++i) {
      const std::string& address = order_.listeners[i];
      server_->listen(std::move(order_.sockets[i]), {address, address.starts_with("unix:"), order_.kinds[i]});
    }
    control_.send("serving");
    co_await app_.backends.settled(kSettleWithin);
    if (!app_.draining) control_.send("ready");
  }

  void finished(const Exchange& exchange, const std::string& peer, const RequestEnd& end) {
    const std::string_view operation = exchange.route != nullptr ? exchange.route->operation_id : "none";
    app_.metrics.request_ended(operation, end.status,
                               std::chrono::duration<double>(end.ended - end.asked).count());
    if (app_.config.log.access) log_request(app_, exchange, operation, peer, end);
  }

  // Open connections keep their certificates.
  Result<void> set_tls(const TlsMaterial& material, const TlsConfig& config) {
    TlsContext context;
    if (config.enabled() != !material.empty())
      return invalid("TLS is configured, but its files did not come");
    if (config.enabled()) {
      auto made = make_tls_context(material);
      if (!made) return made.error();
      context = std::move(*made);
    }
    server_->set_tls(std::move(context), std::chrono::seconds(config.handshake_timeout_sec));
    return {};
  }

  // An error: nothing has changed.
  Result<void> adopt(Config config, std::string local_key_sha256, TlsMaterial tls) {
    auto made = Authenticator::make(config, local_key_sha256, order_.peer_uids);
    if (!made) return made.error();
    if (server_) {
      if (auto set = set_tls(tls, config.tls); !set) return set;
      if (!trusts_all(tls.client_ca, order_.tls.client_ca)) server_->forget_certificates();
    }
    if (config.log.level != app_.config.log.level)
      if (auto set = log::start("front", config.log.level, ""); !set)
        log::error("log_level_not_changed", {{"reason", set.error().message}});
    order_.local_key_sha256 = std::move(local_key_sha256);
    order_.tls = std::move(tls);
    app_.authenticator = std::move(*made);
    app_.config = std::move(config);
    return {};
  }

  // What has a copy of the configuration gets the adopted one.
  void follow_config() {
    app_.backends.reconfigure(app_.config);
    app_.sandboxes.upkeep.release_removed();
    set_limits();
    if (!server_) return;
    server_->set_limits(admitted(app_.config.limits));
    server_->end_unadmitted();
  }

  void set_limits() {
    const LimitsConfig& limits = app_.config.limits;
    app_.sandboxes.records.set_limits(limits.max_sandboxes, limits.max_sandboxes_per_tenant);
    app_.sandboxes.disks.set_limit(limits.max_disk_mb_per_tenant << 20);
    app_.memory.set_limits(limits.max_held_bytes, limits.tenant_share(limits.max_held_bytes));
    app_.spool.quota.set_limits(limits.max_spool_bytes, limits.tenant_share(limits.max_spool_bytes));
    app_.spool.files.set_limits(spool_files(), limits.tenant_share(spool_files()));
    set_exec_limits();
  }

  // Never more at a time than a host takes: what it leaves unread would wait with its timeout running.
  void set_exec_limits() {
    const LimitsConfig& limits = app_.config.limits;
    uint64_t all = 0;
    for (const auto& backend : app_.backends.all()) {
      if (!backend->hello) continue;
      all += backend->hello->max_execs;
      app_.admission.set_backend_limit(backend->config.name, backend->hello->max_execs);
    }
    const auto execs =
        static_cast<uint32_t>(std::min<uint64_t>(limits.max_execs, all == 0 ? UINT32_MAX : all));
    app_.admission.set_limits(
        {.max_execs = execs,
         .max_execs_per_sandbox = limits.max_execs_per_sandbox,
         .exec_queue = limits.exec_queue,
         .max_execs_per_tenant = static_cast<uint32_t>(limits.tenant_share(execs)),
         .exec_queue_per_tenant = static_cast<uint32_t>(limits.tenant_share(limits.exec_queue))});
  }

  // Lets what runs end until the deadline, then kills it; answers are still sent.
  asio::awaitable<void> drain(std::chrono::seconds deadline) {
    if (app_.draining) co_return;
    app_.draining = true;
    log::info("draining", {{"running_execs", app_.admission.running()}, {"deadline_sec", deadline.count()}});
    if (server_) server_->drain();
    for (const auto& [id, sandbox] : app_.sandboxes.records.all()) {
      sandbox->end_watches(WatchEnd::kDraining);
      sandbox->cut_ports(kShuttingDown, true);
    }
    app_.long_execs->ask_all_to_end(app_.config.keep_on_shutdown);
    auto until = std::chrono::steady_clock::now() + deadline;
    // A sandbox that is not re-attached is not removed either.
    const SandboxUpkeep& upkeep = app_.sandboxes.upkeep;
    const bool keep = app_.config.keep_on_shutdown;
    const auto waited_for = [&] { return busy() || (!keep && upkeep.reattaching()); };
    while (waited_for() && std::chrono::steady_clock::now() < until)
      co_await sleep_for(io_.get_executor(), kDrainPoll);
    app_.sandboxes.upkeep.begin_no_more();
    if (busy())
      for (const auto& [id, sandbox] : app_.sandboxes.records.all()) sandbox->end_calls(kShuttingDown);
    until = std::chrono::steady_clock::now() + budget::kAnswersEnd;
    while (waited_for() && std::chrono::steady_clock::now() < until)
      co_await sleep_for(io_.get_executor(), kDrainPoll);
    if (const auto flushed = app_.state->flush(); !flushed)
      log::error("state_flush_failed", {{"reason", flushed.error().message}});
    // Its end is the supervisor's: hosts that see it go first do not know that it was no crash.
    drained_ = true;
    app_.backends.expect_ends();
    if (server_) server_->close_all();
    const auto left = keep ? std::vector<std::string>() : upkeep.without_host();
    if (!left.empty()) log_left(left, "no backend host has them");
    control_.send("drained", left.empty() ? "" : "sandboxes are left");
  }

  [[nodiscard]] bool busy() const { return app_.admission.running() > 0 || (server_ && server_->busy() > 0); }

  void stop(int exit_code) {
    exit_code_ = exit_code;
    if (server_) server_->close_all();
    io_.stop();
  }

  asio::io_context io_{1};
  StartOrder order_;
  std::vector<ExecRow> kept_;  // of the gateway before this one, until they are rejoined
  App app_;
  Control control_;
  std::optional<Server> server_;
  bool drained_ = false;
  int exit_code_ = 0;
};

int fatal(const std::string& message) {
  log::error("front_cannot_start", {{"reason", message}});
  send_fatal(kControl, message);
  return 1;
}

}  // namespace

int front_main() {
  const bool root = started_by_root();
  ::signal(SIGPIPE, SIG_IGN);
  auto order = receive_start(kControl);
  if (!order) return fatal(order.error().message);
  if (auto started = log::start("front", order->config.log.level, order->config.log.file); !started)
    return fatal(started.error().message);
  if (auto dropped = give_up_privileges(root); !dropped) return fatal(dropped.error().message);
  std::vector<ExecRow> kept;
  auto state = open_state(order->state_dir, kept);
  if (!state) return fatal(state.error().message);
  auto authenticator = Authenticator::make(order->config, order->local_key_sha256, order->peer_uids);
  if (!authenticator) return fatal(authenticator.error().message);
  Front front(std::move(*order), std::move(*state), std::move(kept), std::move(*authenticator), root);
  const int code = front.run();
  log::flush();
  std::_Exit(code);  // what still waits in coroutines is not unwound: it would look for what is gone already
}

}  // namespace isogate
