// What a person should know of a pod that does not start. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/k8s/pods.h"
#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

struct ClaimState {
  bool on_its_way = true;  // bound, or somebody makes its volume
  std::string text;        // of one that is not bound: its name, its class, and what it lacks
};
// Of a PersistentVolumeClaim as the API server tells it.
ClaimState claim_state_of(const nlohmann::json& claim);

// Whether the scheduler puts the pod off for a volume.
bool waits_for_volume(const PodState& state);

// Whether there is use in waiting for the sandbox's volume; true where nobody can tell.
bool volume_is_on_its_way(Services& services, const Record& record, const Budget& budget);

// "it does not run after 120 s (ContainerCreating); FailedMount: …; `kubectl …`". Events are told where these
// credentials may read them: the role that is shipped does not.
std::string why_not_started(Services& services, const Record& record, const PodState& state,
                            const Budget& budget);

}  // namespace isogate::k8s
