// What decides that a pod is stuck, and what becomes of it. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "isogate/runner_link.hpp"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Has `link` to the runner of this pod watched until it ends. When the runner is stuck or broken the link is
// closed and the pod removed; the next call makes another one, as for every pod that has died. `running`: how
// many calls of a tenant this gateway has under way in it.
void watch_liveness(Services& services, const Parts& parts, const std::string& pod_uid,
                    const std::shared_ptr<sdk::RunnerLink>& link,
                    std::shared_ptr<const std::atomic<int>> running);

// The same of a pod that nobody here has a link to: whether it is let through twice, and no runner sends
// hello. Takes twice the patience.
bool is_stuck(Services& services, const Parts& parts, const std::string& pod_uid, const sdk::Call& call);

}  // namespace isogate::k8s
