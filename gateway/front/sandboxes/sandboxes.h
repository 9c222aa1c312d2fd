// The sandboxes of this instance: found by (tenant, agent), opened on first use on the backend that
// selection picks, and pinned to it from then on, until they are ended or expire. The front's one thread.
#pragma once

#include <string>

#include "gateway/front/sandboxes/sandbox_upkeep.h"
#include "gateway/front/sandboxes/tenant_disks.h"

namespace isogate::front {

class Sandboxes {
 public:
  Sandboxes(boost::asio::any_io_executor executor, Backends& backends, State& state, std::string instance,
            bool started_by_root);

  Result<void> load();

  // Opens it if necessary. Throws ApiError.
  boost::asio::awaitable<Lease> acquire(const Wanted& wanted);

  // Whether a lease that waited is still valid: its sandbox is the agent's, not about to end, open in the
  // same host, and what the policy chooses now. Throws ApiError when the policy no longer chooses any
  // backend.
  [[nodiscard]] bool still_good(const Lease& lease, const Wanted& wanted) const;

  // Kills what runs, closes it; `purge` removes its files and forgets it. If the state store was lost, a
  // sandbox that only its backend knows is found there. Throws ApiError.
  boost::asio::awaitable<void> end(std::string tenant, std::string agent, bool purge, std::string request_id);
  // Ends and purges expired sandboxes; never returns. A sandbox that cannot be ended now is tried
  // again.
  boost::asio::awaitable<void> end_expired();
  // Sets its expiry and its listener's record. Throws ApiError: it is not recorded.
  boost::asio::awaitable<void> set_e2b_record(SandboxPtr sandbox, int64_t expires_ms, std::string e2b_record);

  SandboxRegister records;
  TenantDisks disks;
  SandboxChanges changes;
  SandboxUpkeep upkeep;

 private:
  [[nodiscard]] Decision decide(const Sandbox& sandbox, const Wanted& wanted) const;
  boost::asio::awaitable<SandboxPtr> find_unrecorded(const std::string& id, const Wanted& wanted);
  void forget_abandoned(Sandbox& sandbox);

  boost::asio::any_io_executor executor_;
  Backends& backends_;
};

}  // namespace isogate::front
