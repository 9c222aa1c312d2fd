// Sandboxes made ahead: pods that run, each with a workspace of its own, tried and nobody's yet. A new
// agent's first call takes one: its Lease becomes the agent's by a write that names the version it was read
// at, so of all that want it one gets it. No pod is made, and none is waited for.
//
// What is ready belongs to a Lease of its own with the label kLabelAhead, which this gateway renews as long
// as it lives. One that is not renewed any more is removed by whichever gateway of the instance sees it. The
// pool's thread looks for these, and ends orphaned pods.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "plugins/common/warm_pool.h"
#include "plugins/k8s/pod/orphaned_pods.h"
#include "plugins/k8s/pod/sandbox_pod.h"

namespace isogate::k8s {

struct PooledPod {
  Limits limits;
  std::chrono::steady_clock::time_point renewed;
  bool measured = false;
  std::unique_ptr<SandboxPod> pod;

  [[nodiscard]] bool warm() const { return pod->warm(); }
};

class Pool final : WarmPool<PooledPod>::Source {
 public:
  // `like`: parts of any sandbox of the backend, without a sandbox_id. `limits`: of the first ones. `size` 0:
  // none are made, and what others have left is removed. `services` is borrowed.
  Pool(Services& services, unsigned size, const Parts& like, const Limits& limits);

  // One with these limits, now `taker`'s, whose Lease has to be there. None: it has to be made. Any thread.
  // Throws ISOGATE_CANCELLED.
  std::optional<ReadyPod> take(const Limits& limits, const Parts& taker, const sdk::Call& call);
  [[nodiscard]] std::string text() const { return pool_.text(); }

 private:
  PooledPod make(const Limits& limits, const sdk::Call& call) override;
  bool remove(PooledPod ready) noexcept override;
  void tend(const sdk::Call& call) override;
  [[nodiscard]] bool may_make() const override { return services_.serves; }
  void renew(const sdk::Call& call);
  [[nodiscard]] bool is_due(const PooledPod& ready) const;
  void remove_leftovers(const sdk::Call& call);

  Services& services_;
  const Parts like_;
  OrphanedPods orphaned_;
  std::chrono::steady_clock::time_point next_tidy_{};  // at what others have left; the pool's thread's
  WarmPool<PooledPod> pool_;                           // the last member: it ends first
};

}  // namespace isogate::k8s
