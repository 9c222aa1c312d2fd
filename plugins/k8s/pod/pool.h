// Sandboxes created in advance: running, tested pods without an agent, each with its own workspace. A new
// agent's first call takes one: its Lease becomes the agent's by a write that names the version it was read
// at, so only one taker gets it. The call creates no pod, and waits for none.
//
// A ready pod belongs to its own Lease with the label kLabelAhead, which this gateway renews while it lives.
// Any gateway of the instance removes a Lease that is no longer renewed. The pool's thread looks for these.
//
// It also ends orphaned pods after a while: those that run although none of the gateways that used them
// exists any more. Their workspaces stay; one whose workspace is an emptyDir is not ended.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "plugins/common/warm_pool.h"
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
  // As many as `warm_pool`; 0: it creates none, and removes what others have left. `services` is borrowed.
  explicit Pool(Services& services);

  // A pod with these limits, now `taker`'s, whose Lease must exist. None: the caller must create one. Any
  // thread. Throws ISOGATE_CANCELLED.
  std::optional<ReadyPod> take(const Limits& limits, const Parts& taker, const sdk::Call& call);
  [[nodiscard]] std::string text() const { return pool_.text(); }

 private:
  PooledPod make(const Limits& limits, const sdk::Call& call) override;
  bool remove(PooledPod ready) noexcept override { return ready.pod->drop(); }
  void tend(const sdk::Call& call) override;
  [[nodiscard]] bool may_make() const override { return services_.serves; }
  void renew(const sdk::Call& call);
  [[nodiscard]] bool is_due(const PooledPod& ready) const;
  void remove_leftovers(const sdk::Call& call);
  void stop_orphaned(const sdk::Call& call);
  bool is_orphaned(const nlohmann::json& lease, const std::set<std::string>& living);

  Services& services_;
  std::map<std::string, std::chrono::steady_clock::time_point> orphaned_;  // since when, by sandbox
  std::chrono::steady_clock::time_point next_tidy_{};  // at what others have left; the pool's thread's
  WarmPool<PooledPod> pool_;                           // the last member: it ends first
};

}  // namespace isogate::k8s
