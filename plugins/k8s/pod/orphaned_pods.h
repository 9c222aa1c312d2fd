// Pods that run although none of the gateways that used them exists any more. A gateway of the instance
// ends them after a while; their workspaces stay. A pod whose workspace is an emptyDir is not ended. One
// thread at a time.
#pragma once

#include <chrono>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>

#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

class OrphanedPods {
 public:
  // `like`: parts of any sandbox of the backend, without a sandbox_id. `services` is borrowed.
  OrphanedPods(Services& services, Parts like) : services_(services), like_(std::move(like)) {}

  // Checks once, and ends those that were without a gateway for orphaned_after_sec. One that cannot be
  // ended is logged. Throws what Api throws.
  void stop_due(const sdk::Call& call);

 private:
  bool is_orphaned(const nlohmann::json& lease, const std::set<std::string>& living);

  Services& services_;
  const Parts like_;
  std::map<std::string, std::chrono::steady_clock::time_point> since_;  // by sandbox
};

}  // namespace isogate::k8s
