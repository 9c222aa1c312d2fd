// What a cluster has to be for this backend to serve. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "isogate/backend.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Looks at the cluster: cheaply each time, in full when that was not done for a while.
class Requirements {
 public:
  // `any`: what is the same in all sandboxes; `limits`: of one for which nothing is asked. Why the cluster
  // cannot be used; empty: it can. Throws what Api throws.
  std::string why_not(Services& services, const Parts& any, const Limits& limits, const Budget& budget);
  // "Kubernetes v1.20.2", and what a person should know of the namespace; of the last look.
  [[nodiscard]] std::string text() const;

 private:
  std::string look_in_full(Services& services, const Parts& any, const Limits& limits, const Budget& budget);

  mutable std::mutex mutex_;
  std::string text_, why_not_;
  std::chrono::steady_clock::time_point looked_;
  bool looked_before_ = false;
  std::atomic<bool> was_fine_ = false;
};

}  // namespace isogate::k8s
