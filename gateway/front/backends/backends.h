// Every configured backend as the front knows it: its host's channel, its latest probe, its breaker.
// Answers which one a call goes to. The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/config/config.h"
#include "gateway/front/backends/backend_channel.h"
#include "gateway/front/backends/breaker.h"
#include "gateway/front/backends/call_gate.h"
#include "gateway/front/backends/select.h"
#include "gateway/front/backends/start_window.h"
#include "gateway/front/base/alarm.h"
#include "gateway/front/base/changes.h"
#include "gateway/front/state/state.h"

namespace isogate::front {

struct Backend {
  explicit Backend(const boost::asio::any_io_executor& executor)
      : starts(std::make_shared<StartWindow>(executor)) {}

  BackendConfig config;
  bool configured = true;
  BackendState state = BackendState::kStarting;
  std::string reason = "its host is starting";
  uint64_t generation = 0;
  std::optional<uint64_t> offered;  // the last one that was asked to re-attach all that runs
  bool not_listed = false;          // it was asked for all that runs, and the latest answer was no listing
  uint64_t restarts = 0;
  bool probing = false;                                // by probe_loop()
  bool settled = false;                                // its host has been probed, or is known to be down
  std::chrono::steady_clock::time_point probed, lost;  // when last; when it was last found to be unavailable
  std::optional<ipc::Hello> hello;
  std::optional<ipc::Probe> probe, good;    // the latest; the latest that was not `unavailable`, of any host
  std::optional<uint64_t> good_settings;    // those that `good` was measured with
  std::optional<uint32_t> seen;             // the isolation of the latest `good`, of any settings
  std::shared_ptr<BackendChannel> channel;  // null unless up
  Breakers breakers;
  CallGate file_calls{"file calls"}, durable_writes{"durable writes"}, watches{"watches"},
      ports{"connections to ports"};
  std::shared_ptr<StartWindow> starts;

  // Whether its host serves, or may come to.
  [[nodiscard]] bool may_serve() const {
    const bool unavailable = settled && probe && probe->verdict == ISOGATE_PROBE_UNAVAILABLE;
    return !unavailable && state != BackendState::kFailed && state != BackendState::kQuarantined;
  }
  [[nodiscard]] bool serves() const {
    return channel && settled && probe && probe->verdict != ISOGATE_PROBE_UNAVAILABLE;
  }
};

// Turns a decision that chose nothing into its error.
ApiError refusal_of(const Decision& decision);
ApiError is_restarting(const std::string& backend);
// It cannot be asked: it is restarting, or down until an operator corrects it.
ApiError without_host(const Backend& backend);

class Backends {
 public:
  Backends(boost::asio::any_io_executor executor, const Config& config);

  // From the supervisor.
  void host_up(std::string_view name, HostIdentity identity, Fd socket);
  // The process of that generation has ended, or was never started.
  void host_down(std::string_view name, uint64_t generation, std::string reason, BackendState state);
  void reconfigure(const Config& config);

  // Called whenever a host has reported how much it takes.
  void on_hello(std::function<void()> act) { on_hello_ = std::move(act); }
  // Called when a new host has been probed, whatever its verdict.
  void on_probed(std::function<void(std::shared_ptr<Backend>)> act) { on_probed_ = std::move(act); }
  // Called when a host has been abandoned: it must be replaced.
  void on_stuck(std::function<void(const std::string& name, const BackendChannel& host)> act) {
    on_stuck_ = std::move(act);
  }
  // Probes once at host_up, three times 2 s apart under require_remote, then every interval for ever, and
  // every 2 s in the minute after one was lost; each backend separately, so that a slow one does not delay
  // the others. A backend that was available is lost when two probes in a row fail: the second follows at
  // once.
  boost::asio::awaitable<void> probe_loop();

  // Returns when every backend has been probed or is known to be down; waits at most `limit`.
  boost::asio::awaitable<void> settled(std::chrono::nanoseconds limit);
  // The same for one request, but for its `capabilities`: it waits neither for backends other than the one
  // that the request names, nor for those behind the one that policy chooses. So no call is refused, or goes
  // to another backend, while a host replaces an earlier one, and a later one delays no call.
  boost::asio::awaitable<void> settled(std::chrono::nanoseconds limit, SelectRequest request);

  // From here on backend hosts end because the gateway stops: the log does not warn of it.
  void expect_ends() { stopping_ = true; }

  [[nodiscard]] Decision decide(const SelectRequest& request) const;
  [[nodiscard]] std::shared_ptr<Backend> find(std::string_view name) const;
  [[nodiscard]] const std::vector<std::shared_ptr<Backend>>& all() const { return backends_; }
  [[nodiscard]] const Policy& policy() const { return policy_; }

  // Updates the backend's health by a call's reply.
  void judge(Backend& backend, const SandboxRow& sandbox, const ipc::Reply& reply);

 private:
  boost::asio::awaitable<void> first_probes(std::shared_ptr<Backend> backend, uint64_t generation);
  // None: the host has ended.
  boost::asio::awaitable<std::optional<ipc::Probe>> ask(std::shared_ptr<Backend> backend) const;
  boost::asio::awaitable<void> probe_once(std::shared_ptr<Backend> backend);
  boost::asio::awaitable<void> probe_again(std::shared_ptr<Backend> backend);
  void take_probe(Backend& backend, const ipc::Probe& probe);
  [[nodiscard]] bool is_due(const Backend& backend) const;
  void take_limits(Backend& backend) const;
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] bool is_settled(const SelectRequest& request) const;
  // Once every backend was probed or is down: logs why none can serve a call that asks for nothing, whenever
  // that changes, and when one can again.
  void report_choice();

  boost::asio::any_io_executor executor_;
  Policy policy_;
  uint32_t interval_sec_;
  LimitsConfig limits_;
  std::vector<std::shared_ptr<Backend>> backends_;  // in the operator's order
  Changes news_;                                    // when one has settled, or was probed again
  std::string reported_;                            // why none can serve, as logged last; empty: one can
  bool stopping_ = false;
  Alarm after_reload_;  // its new hosts, which follow at once, are probed first
  std::function<void()> on_hello_;
  std::function<void(std::shared_ptr<Backend>)> on_probed_;
  std::function<void(const std::string& name, const BackendChannel& host)> on_stuck_;
};

}  // namespace isogate::front
