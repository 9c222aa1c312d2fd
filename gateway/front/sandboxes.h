// The sandboxes of this instance: found by (tenant, agent), opened on first use on the backend that
// selection picks, and pinned to it from then on. A Lease holds one open while calls run.
// The front's one thread.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "gateway/front/api_error.h"
#include "gateway/front/backends.h"
#include "gateway/front/evidence_check.h"
#include "gateway/front/state.h"

namespace isogate::front {

struct Sandbox {
  SandboxRow row;
  bool known = false;  // in the state store
  bool runs = false;   // it goes on without its host, and one host at a time has it open
  // The host it is open in; null: none. Where it `runs`, held until the next host has it.
  std::shared_ptr<BackendChannel> open_in;
  bool changing = false;  // being opened or closed
  bool ending = false;
  std::vector<std::shared_ptr<Event>> waiters;
  size_t calls = 0;                            // leases out
  std::chrono::steady_clock::time_point used;  // when the last lease came back
  size_t execs = 0;
  std::unordered_set<std::function<void()>*> kills;  // of running execs
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
};

class Sandboxes {
 public:
  Sandboxes(boost::asio::any_io_executor executor, Backends& backends, State& state, std::string instance,
            bool started_by_root);

  Result<void> load();

  // What a sandbox tries to reach when it is measured: this gateway's own listener.
  void set_gateway(std::string address, uint32_t port) {
    gateway_address_ = std::move(address);
    gateway_port_ = port;
  }

  void set_limits(size_t all, size_t per_tenant) {
    most_ = all;
    most_per_tenant_ = per_tenant;
  }

  // Opens it where needed. Throws ApiError.
  boost::asio::awaitable<Lease> acquire(const Wanted& wanted);

  // Kills what runs, closes it; `purge` removes its files and forgets it. Throws ApiError.
  boost::asio::awaitable<void> end(const std::string& tenant, const std::string& agent, bool purge,
                                   std::string request_id);

  // What runs in a sandbox of that backend, from before its host came, is opened in it, a few at a time,
  // until nothing is left or another host comes. What still has calls in the host before stays there till
  // they end.
  boost::asio::awaitable<void> take_up(std::shared_ptr<Backend> backend);
  [[nodiscard]] bool taking_up() const { return taking_up_ > 0; }
  // What backends have that are not configured any more, their hosts let go of.
  void let_go_of_removed();

  // Stops, for ever, what had no call for the time that limit() answers when asked, 0 for never; the
  // workspace stays, and the next call opens it again.
  boost::asio::awaitable<void> stop_idle(std::function<std::chrono::seconds()> limit);

  // A call came back with ISOGATE_NO_SANDBOX or ISOGATE_SANDBOX_LOST: the next acquire() opens anew.
  void lost(const Lease& lease, isogate_status status);

  [[nodiscard]] std::vector<const Sandbox*> of(const std::string& tenant) const;
  [[nodiscard]] size_t count() const { return sandboxes_.size(); }
  void kill_all();  // every running exec

 private:
  std::shared_ptr<Sandbox> find_or_make(const std::string& id, const Wanted& wanted);
  void forget_if_unknown(const std::string& id);
  void forget(const std::string& id);
  void forget_abandoned(Sandbox& sandbox, bool purge);
  boost::asio::awaitable<void> take(Sandbox& sandbox);
  void give_back(Sandbox& sandbox);
  struct Opener;
  boost::asio::awaitable<void> open(Sandbox& sandbox, Backend& backend, const Wanted& wanted, uint32_t how);
  boost::asio::awaitable<ipc::Opened> ask_to_open(Sandbox& sandbox, Backend& backend, const Opener& by,
                                                  const Wanted& wanted, uint32_t how);
  boost::asio::awaitable<void> close_before(Sandbox& sandbox, const Opener& by);
  boost::asio::awaitable<void> check_evidence(Sandbox& sandbox, const Opener& by, const ipc::Opened& opened,
                                              const std::string& request_id);
  struct Left;
  struct Round;
  boost::asio::awaitable<std::optional<std::vector<Left>>> look_what_runs(const Backend& backend);
  boost::asio::awaitable<void> take_up_due(std::shared_ptr<Backend> backend, std::vector<Left>& left);
  boost::asio::awaitable<void> take_up_some(std::shared_ptr<Backend> backend, std::shared_ptr<Round> round);
  boost::asio::awaitable<void> take_up_one(Backend& backend, Left& left);
  boost::asio::awaitable<void> commit(const Sandbox& sandbox);
  boost::asio::awaitable<void> wait_for_calls(Sandbox& sandbox);
  boost::asio::awaitable<void> stop_if_idle(std::shared_ptr<Sandbox> sandbox, std::chrono::seconds limit);
  boost::asio::awaitable<void> settled_for(const std::string& id, const Wanted& wanted);
  Decision decide(const Sandbox& sandbox, const Wanted& wanted) const;

  boost::asio::any_io_executor executor_;
  Backends& backends_;
  State& state_;
  std::string instance_;
  bool started_by_root_;
  Namespaces host_namespaces_;
  std::string gateway_address_;
  uint32_t gateway_port_ = 0;
  size_t taking_up_ = 0;
  size_t most_ = SIZE_MAX, most_per_tenant_ = SIZE_MAX;
  std::unordered_map<std::string, std::shared_ptr<Sandbox>> sandboxes_;  // by sandbox_id
  std::unordered_map<std::string, size_t> per_tenant_;
};

// Turns a decision that chose nothing into its error.
ApiError refusal_of(const Decision& decision);
ApiError is_restarting(const std::string& backend);
// While calls of it run in a host whose place another one has taken, that host; else null.
std::shared_ptr<BackendChannel> busy_before(const Sandbox& sandbox, const BackendChannel& now);

}  // namespace isogate::front
