// What a person should know of a pod that does not start. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/k8s/pod/pods.h"
#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// What a PersistentVolumeClaim that is not bound lacks, with its name and class; empty: it is bound.
std::string what_lacks(const nlohmann::json& claim);

// Whether the scheduler puts the pod off for a volume.
bool waits_for_volume(const PodState& state);

// "it does not run after 120 s (ContainerCreating); FailedMount: …; `kubectl …`". Events are told where these
// credentials may read them: the role that is shipped does not.
std::string why_not_started(Services& services, const Record& record, const PodState& state,
                            const Budget& budget);

}  // namespace isogate::k8s
