// Decides whether a pod is stuck, and removes it. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// What this gateway does with a pod. Any thread.
class PodUse {
 public:
  std::atomic<int> calls = 0;  // of a tenant, which run in it

  void belong_to(const std::string& sandbox_id);
  [[nodiscard]] std::string sandbox_id() const;  // whose Lease has its users

 private:
  mutable std::mutex mutex_;
  std::string sandbox_id_;
};

// Watches `link` to the runner of this pod until it ends. When the runner is stuck or broken, closes the link
// and removes the pod; the next call creates another one, as for every pod that has died.
void watch_liveness(Services& services, const Parts& parts, const std::string& pod_uid,
                    const std::shared_ptr<sdk::RunnerLink>& link, std::shared_ptr<const PodUse> use);

// The same for a pod without a link here: whether two connections are accepted and no runner sends
// HELLO. Takes twice the patience.
bool is_stuck(Services& services, const Parts& parts, const std::string& pod_uid, const sdk::Call& call);

}  // namespace isogate::k8s
