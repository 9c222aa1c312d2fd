// The requirements of a cluster for this backend to serve. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "isogate/backend.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Checks the cluster: cheaply each time, fully if that was not done for a while.
class Requirements {
 public:
  // `any`: the parts that all sandboxes share; `limits`: the defaults. Returns why the cluster cannot be
  // used; empty: it can. Throws what Api throws.
  std::string why_not(Services& services, const Parts& any, const Limits& limits, const Budget& budget);
  // "Kubernetes v1.20.2", and notes about the namespace; of the last check.
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
