// The sandboxes of this instance: found by (tenant, agent), opened on first use on the backend that
// selection picks, and pinned to it from then on. A Lease holds one open while calls run.
// The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "gateway/front/base/api_error.h"
#include "gateway/front/sandboxes/backends.h"
#include "gateway/front/sandboxes/evidence_check.h"
#include "gateway/front/state/state.h"

namespace isogate::front {

// Why a watch ends.
enum class WatchEnd {
  kRemoved,       // its directory is gone
  kSandboxEnded,  // or is stopped
  kReloaded,      // another host replaces the one that watches
  kDraining,
  kFailed,
};

// Ends a connection to a port at once; with `lasting_only` not one that carries a single request.
using PortCut = std::function<void(const std::string& why, bool lasting_only)>;

struct Sandbox {
  SandboxRow row;
  bool known = false;      // in the state store; `row.state`: whether it was ever accepted
  bool runs = false;       // it outlives its host, and one host at a time has it open
  bool left_over = false;  // by an earlier gateway, half-made or half-removed
  // A close that began and has not succeeded, ISOGATE_CLOSE_*: no call but another close may follow.
  std::optional<uint32_t> closing;
  // The host it is open in; null: none. Where it `runs`, held until the next host has it.
  std::shared_ptr<BackendChannel> open_in;
  bool changing = false;  // being opened or closed
  std::vector<std::shared_ptr<Event>> waiters;
  size_t calls = 0;                            // leases out
  std::chrono::steady_clock::time_point used;  // when the last lease came back
  size_t execs = 0;
  Limits in_force;                                   // as measured at its last open; 0: not known, or none
  std::optional<ipc::DiskUse> disk;                  // as its backend said last; none: it does not say
  std::unordered_set<std::function<void()>*> kills;  // of running execs
  // Running watches. They are no calls: they keep it neither from becoming idle nor from being
  // closed.
  std::unordered_set<std::function<void(WatchEnd)>*> watches;
  // Why the gateway does not connect to its ports; empty: its network was measured, and is its
  // own.
  std::string ports_refused = "its network was not measured";
  std::unordered_set<PortCut*> ports;  // of its open connections to ports
};

// One change of a sandbox at a time: it is `changing` while this lives. Then the next waiter continues,
// however the change ended.
class [[nodiscard]] Change {
 public:
  explicit Change(std::shared_ptr<Sandbox> of) : sandbox_(std::move(of)) { sandbox_->changing = true; }
  Change(Change&&) noexcept = default;
  Change& operator=(Change&&) = delete;
  ~Change() {
    if (!sandbox_) return;
    sandbox_->changing = false;
    for (auto& waiter : std::exchange(sandbox_->waiters, {})) waiter->set();
  }

 private:
  std::shared_ptr<Sandbox> sandbox_;
};

class Lease {
 public:
  Lease(std::shared_ptr<Sandbox> of, std::shared_ptr<Backend> on, const std::shared_ptr<BackendChannel>& by)
      : sandbox(std::move(of)), backend(std::move(on)), channel(by->hold()) {
    ++sandbox->calls;
  }
  Lease(Lease&&) = default;
  Lease& operator=(Lease&&) = delete;
  ~Lease() {
    if (!sandbox) return;
    --sandbox->calls;
    sandbox->used = std::chrono::steady_clock::now();
  }

  std::shared_ptr<Sandbox> sandbox;
  std::shared_ptr<Backend> backend;
  std::shared_ptr<BackendChannel> channel;
};

struct Wanted {
  std::string tenant, agent;
  std::optional<std::string> backend;
  std::optional<uint32_t> min_isolation;
  uint64_t capabilities = 0;
  std::string request_id;
  std::optional<std::string> image = {};  // that it must have; empty: its backend's own
  int64_t expires_ms = 0;                 // of a new one: SandboxRow's
  std::string e2b_record = {};            // the same
  bool existing = false;                  // sandbox_not_found where there is none yet
  bool running = false;                   // not opened if nothing of it runs: a permanent error
};

class Sandboxes {
 public:
  Sandboxes(boost::asio::any_io_executor executor, Backends& backends, State& state, std::string instance,
            bool started_by_root);

  Result<void> load();

  // Ends and purges expired sandboxes; never returns. A sandbox that cannot be ended now is tried
  // again.
  boost::asio::awaitable<void> end_expired();
  // Sets its expiry and its listener's record. Throws ApiError: it is not recorded.
  boost::asio::awaitable<void> set_e2b_record(std::shared_ptr<Sandbox> sandbox, int64_t expires_ms,
                                              std::string e2b_record);
  // Null: there is none.
  [[nodiscard]] std::shared_ptr<Sandbox> find(const std::string& tenant, const std::string& agent) const;
  // Of any tenant, among those that the E2B listener created. Their agents' names are made by it, and
  // unique.
  [[nodiscard]] std::shared_ptr<Sandbox> find_e2b_sandbox(const std::string& agent) const;
  [[nodiscard]] std::vector<std::shared_ptr<Sandbox>> e2b_sandboxes() const;

  // The addresses that a sandbox tries to reach when it is measured: every TCP listener of this
  // gateway.
  void add_listener(const std::string& address, uint32_t port);

  // `disk_per_tenant`: bytes, 0 for no limit.
  void set_limits(size_t all, size_t per_tenant, uint64_t disk_per_tenant) {
    most_ = all;
    most_per_tenant_ = per_tenant;
    most_disk_per_tenant_ = disk_per_tenant;
  }

  // Opens it if necessary. Throws ApiError.
  boost::asio::awaitable<Lease> acquire(const Wanted& wanted);

  // Whether a lease that waited is still valid: its sandbox is the agent's, not about to end, open in the
  // same host, and what the policy chooses now. Throws ApiError when the policy no longer chooses any
  // backend.
  [[nodiscard]] bool still_good(const Lease& lease, const Wanted& wanted) const;

  // Kills what runs, closes it; `purge` removes its files and forgets it. If the state store was lost, a
  // sandbox that only its backend knows is found there. Throws ApiError.
  boost::asio::awaitable<void> end(const std::string& tenant, const std::string& agent, bool purge,
                                   std::string request_id);

  // Opens the running sandboxes of that backend in its new host, a few at a time, until none is left or
  // another host comes. A sandbox with calls in the previous host stays there until they end.
  boost::asio::awaitable<void> reattach(std::shared_ptr<Backend> backend);
  [[nodiscard]] bool reattaching() const { return reattaching_ > 0; }
  // Releases the sandboxes of backends that are no longer configured.
  void release_removed();

  // Stops sandboxes without a call for the time that limit() returns, 0 for never; never returns.
  // The workspace stays, and the next call opens the sandbox again.
  boost::asio::awaitable<void> stop_idle(std::function<std::chrono::seconds()> limit);

  // A call came back with ISOGATE_NO_SANDBOX or ISOGATE_SANDBOX_LOST: the next acquire() opens it again.
  void lost(const Lease& lease, isogate_status status);

  // An exec in it ran in the wrong place: it is closed before anything else runs in it.
  static void distrust(const Lease& lease);

  // Null: none of that id is in the state store.
  [[nodiscard]] const Sandbox* known(const std::string& id) const;
  [[nodiscard]] std::vector<const Sandbox*> of(const std::string& tenant) const;
  [[nodiscard]] size_t count() const { return sandboxes_.size(); }
  // Asks for the disk use of the tenant's open sandboxes, at most a thousand; empty: of all tenants.
  // After a second, sandboxes without a reply keep their last known value.
  boost::asio::awaitable<void> look_at_disks(std::string tenant);
  struct DiskTotal {
    uint64_t used_bytes = 0, limit_bytes = 0;
  };
  // By tenant, as far as it is known; the same.
  [[nodiscard]] std::map<std::string, DiskTotal> disk_totals(const std::string& tenant) const;
  void kill_all();                 // every running exec, and connection to a port
  void end_watches(WatchEnd why);  // all of them
  // Those connections to ports that end by nothing else; the number of all.
  void cut_ports(const std::string& why);
  [[nodiscard]] size_t port_connections() const;

 private:
  boost::asio::awaitable<void> ask_for_disks(std::string tenant);
  boost::asio::awaitable<std::optional<uint64_t>> ask_for_disk(Sandbox& sandbox,
                                                               std::shared_ptr<BackendChannel> channel);
  void check_disk_of_tenant(const Sandbox& sandbox, std::optional<uint64_t> limit) const;
  std::shared_ptr<Sandbox> find_or_make(const std::string& id, const Wanted& wanted);
  void forget_if_unknown(const std::string& id);
  void forget(const std::string& id);
  void forget_abandoned(Sandbox& sandbox, bool purge);
  boost::asio::awaitable<Change> change(std::shared_ptr<Sandbox> sandbox);
  // The channel that opens it, and the claims that apply: a reload may replace both before the sandbox is
  // open and measured, but these are used for the check.
  struct Opener {
    std::shared_ptr<BackendChannel> channel;  // held
    BackendConfig config;
    ipc::Probe probe;
  };
  static Opener opener(Backend& backend);  // throws ApiError while there is none
  boost::asio::awaitable<void> open(Sandbox& sandbox, Backend& backend, const Wanted& wanted, uint32_t how);
  boost::asio::awaitable<ipc::Opened> ask_to_open(Sandbox& sandbox, Backend& backend, const Opener& by,
                                                  const Wanted& wanted, uint32_t how);
  boost::asio::awaitable<void> close_before(Sandbox& sandbox, const Opener& by);
  boost::asio::awaitable<void> record_intent(Sandbox& sandbox, const Opener& by, const Wanted& wanted);
  boost::asio::awaitable<ipc::Opened> open_unused(Sandbox& sandbox, Backend& backend, const Opener& by,
                                                  const Wanted& wanted, uint32_t how);
  boost::asio::awaitable<void> accept(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                      bool for_a_call, std::optional<uint64_t> disk);
  void forget_intent(Sandbox& sandbox);
  boost::asio::awaitable<void> undo_open(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                         const std::string& request_id);
  boost::asio::awaitable<void> close(Sandbox& sandbox, Backend& backend, uint32_t mode,
                                     const std::string& request_id);
  boost::asio::awaitable<void> close_in(Sandbox& sandbox, std::shared_ptr<BackendChannel> channel,
                                        const std::string& request_id);
  boost::asio::awaitable<bool> attach_to_close(Sandbox& sandbox, Backend& backend,
                                               const std::string& request_id);
  boost::asio::awaitable<void> finish_closing(std::shared_ptr<Sandbox> sandbox, const Wanted& wanted);
  boost::asio::awaitable<std::shared_ptr<Sandbox>> find_unrecorded(const std::string& id,
                                                                   const Wanted& wanted);
  boost::asio::awaitable<void> forget_recorded(Sandbox& sandbox);
  boost::asio::awaitable<void> check_evidence(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                              const std::string& request_id);
  boost::asio::awaitable<void> end_never_accepted(std::shared_ptr<Backend> backend);
  struct Left;
  struct Round;
  boost::asio::awaitable<std::optional<std::vector<Left>>> look_what_runs(const Backend& backend);
  boost::asio::awaitable<void> reattach_due(std::shared_ptr<Backend> backend, std::vector<Left>& left);
  boost::asio::awaitable<void> reattach_some(std::shared_ptr<Backend> backend, std::shared_ptr<Round> round);
  boost::asio::awaitable<void> reattach_one(Backend& backend, Left& left);
  boost::asio::awaitable<Result<void>> commit(const Sandbox& sandbox);
  boost::asio::awaitable<Result<void>> stored(std::function<void(State::Done)> act);
  boost::asio::awaitable<void> wait_for_calls(Sandbox& sandbox);
  struct IdleRound;
  boost::asio::awaitable<void> stop_some_idle(std::string backend, std::shared_ptr<IdleRound> round,
                                              std::chrono::seconds limit);
  boost::asio::awaitable<void> stop_if_idle(std::shared_ptr<Sandbox> sandbox, std::chrono::seconds limit);
  boost::asio::awaitable<void> settled_for(const std::string& id, const Wanted& wanted);
  Decision decide(const Sandbox& sandbox, const Wanted& wanted) const;

  boost::asio::any_io_executor executor_;
  std::set<std::string> looking_at_disks_;  // of these tenants
  Backends& backends_;
  State& state_;
  std::string instance_;
  bool started_by_root_;
  Namespaces host_namespaces_;
  std::string gateway_address_;  // the first of the listeners
  uint32_t gateway_port_ = 0;
  std::string gateway_listeners_;
  size_t reattaching_ = 0;
  std::unordered_set<std::string> stopping_idle_;  // backends
  size_t most_ = SIZE_MAX, most_per_tenant_ = SIZE_MAX;
  uint64_t most_disk_per_tenant_ = 0;
  std::unordered_map<std::string, std::shared_ptr<Sandbox>> sandboxes_;  // by sandbox_id
  std::unordered_map<std::string, size_t> per_tenant_;
  std::unordered_map<std::string, std::string> e2b_agents_;  // by agent: sandbox_id
};

// Turns a decision that chose nothing into its error.
ApiError refusal_of(const Decision& decision);
ApiError is_restarting(const std::string& backend);
// The replaced host in which calls of it still run; else null.
std::shared_ptr<BackendChannel> busy_before(const Sandbox& sandbox, const BackendChannel& now);

}  // namespace isogate::front
