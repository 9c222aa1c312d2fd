#include "gateway/host/capacity.h"

#include <isogate/backend.h>

#include <algorithm>

namespace isogate {

Capacity wanted_capacity(const LimitsConfig& limits) {
  return {size_t{limits.max_execs} + kFileCalls + kWatches + kConnections + kReserve, limits.max_sandboxes};
}

// A call brings up to five descriptors, and a plugin opens about as many more; an open sandbox keeps up to
// nine, and one of namespaces up to twenty-three: these, its waiting init, its groups of each cgroup
// hierarchy. If they do not suffice for everything, a quarter of them is for sandboxes.
Capacity capacity_of(const LimitsConfig& limits, uint32_t isolation, uint64_t open_files) {
  constexpr uint64_t kPerCall = 16, kOwn = 64;
  const uint64_t per_sandbox = isolation == ISOGATE_ISOLATION_NAMESPACE ? 24 : 10;
  const Capacity wanted = wanted_capacity(limits);
  const uint64_t all = std::max(open_files, 2 * kOwn) - kOwn;
  const uint64_t for_sandboxes = std::min<uint64_t>(wanted.sandboxes * per_sandbox, all / 4);
  Capacity most;
  most.calls =
      std::max<size_t>(std::min<size_t>(wanted.calls, (all - for_sandboxes) / kPerCall), 2 * kReserve);
  const uint64_t left = all - std::min<uint64_t>(all, most.calls * kPerCall);
  most.sandboxes = std::clamp<size_t>(left / per_sandbox, 1, wanted.sandboxes);
  return most;
}

}  // namespace isogate
