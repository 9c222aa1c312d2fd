// The requirements of a cluster for this backend to serve. Any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Checks the cluster: cheaply each time, fully if that was not done for a while.
class Requirements {
 public:
  // Returns why the cluster cannot be used; empty: it can. Throws what Api throws.
  std::string why_not(Services& services, const Budget& budget);
  // "Kubernetes v1.20.2", and notes about the namespace; of the last check.
  [[nodiscard]] std::string text() const;

 private:
  std::string look_in_full(Services& services, const Budget& budget);

  mutable std::mutex mutex_;
  std::string text_;
  std::optional<std::chrono::steady_clock::time_point> fine_since_;  // if the last full check found nothing
  std::atomic<bool> was_fine_ = false;
};

}  // namespace isogate::k8s
