// Sandboxes created in advance: running, tested pods without an agent, each with its own workspace. A new
// agent's first call takes one: its Lease becomes the agent's by a write that names the version it was read
// at, so only one taker gets it. The call creates no pod, and waits for none.
//
// A ready pod belongs to its own Lease with the label kLabelAhead, which this gateway renews while it lives.
// Any gateway of the instance removes a Lease that is no longer renewed. The pool's thread looks for these,
// and ends orphaned pods.
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
  // it creates none, and removes what others have left. `services` is borrowed.
  Pool(Services& services, unsigned size, const Parts& like, const Limits& limits);

  // A pod with these limits, now `taker`'s, whose Lease must exist. None: the caller must create one. Any
  // thread. Throws ISOGATE_CANCELLED.
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
