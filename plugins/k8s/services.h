// The state that all sandboxes of one backend share. Any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <string>

#include "isogate/backend.hpp"
#include "plugins/common/proof.h"
#include "plugins/k8s/client/api.h"
#include "plugins/k8s/client/exec_channel.h"
#include "plugins/k8s/config.h"
#include "plugins/k8s/liveness.h"
#include "plugins/k8s/pod/pods.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/presence.h"
#include "plugins/k8s/renewals.h"

namespace isogate::k8s {

// The parts of any sandbox of this backend: without a sandbox_id.
Parts parts_of_any(const sdk::Host& host);

struct Services {
  Services(sdk::Host host, const Config& config, ClusterAccess access);

  const sdk::Host host;
  const Config& config;  // the backend's
  const Parts any;       // parts_of_any()
  Api api;
  const std::string name_space;
  const std::string holder;  // this gateway's name among those that share sandboxes; the same after a restart

  Renewals renewals;                // of Leases, by their names
  std::atomic<bool> serves{false};  // the last probe found nothing missing
  // Pods that it used were left running: other gateways wait for its return as if it had been killed.
  std::atomic<bool> keeps{false};
  std::atomic<bool> volumes_wait_for_pods{false};  // claims are bound when a pod uses them

  // The addresses that each new sandbox tries to reach; none: no sandbox was measured yet.
  [[nodiscard]] std::optional<GatewayAddresses> gateway() const;
  void learn_gateway(const isogate_evidence_request& request);

  void warn(const std::string& line) const { host.log(ISOGATE_LOG_WARN, line); }
  void info(const std::string& line) const { host.log(ISOGATE_LOG_INFO, line); }
  void warn_once(const std::string& line);  // a few different ones

  // Objects that this backend creates: leases, pods, persistentvolumeclaims, networkpolicies.
  [[nodiscard]] Resource leases(const std::string& name = {}) const;
  [[nodiscard]] Resource pod(const std::string& name = {}) const;
  [[nodiscard]] Resource claims(const std::string& name = {}) const;
  [[nodiscard]] Resource policies(const std::string& name = {}) const;
  // Of agents.x-k8s.io, in the newest version that the cluster serves. Checked each time, because in a
  // version that it no longer serves, existing objects look deleted.
  Resource sandbox_object(const std::string& name, const Budget& budget);

 private:
  mutable std::mutex mutex_;
  std::string warned_;
  std::optional<GatewayAddresses> gateway_;

 public:
  Presence presence{*this};
  Pods pods;
  Liveness liveness;  // the last member: it ends first, then `pods`
};

// Into the container of a sandbox's pod.
ExecRequest exec_request(const Services& services, const std::string& pod, std::vector<std::string> command);

// Removes `what` if it still is the object `uid`. Returns false if it is already deleted.
bool remove_object(Services& services, const Resource& what, const std::string& uid, const Budget& budget);

// The same, only for the version of `what` that `known` is.
bool remove_version(Services& services, const Resource& what, const nlohmann::json& known,
                    const Budget& budget);

[[noreturn]] inline void unavailable(const std::string& why) { throw sdk::Error(ISOGATE_UNAVAILABLE, why); }

// A refusal of the cluster is never the caller's mistake: other statuses than
// ISOGATE_CANCELLED and ISOGATE_UNAVAILABLE become the latter.
[[noreturn]] void rethrow_as_ours(Services& services, const std::exception_ptr& failure);

}  // namespace isogate::k8s
