// Explains to a person why a pod does not start. Any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "plugins/k8s/pod/pods.h"
#include "plugins/k8s/record.h"
#include "plugins/k8s/services.h"

namespace isogate::k8s {

// Why a PersistentVolumeClaim is not bound, with its name and class; empty: it is bound.
std::string what_lacks(const nlohmann::json& claim);

// Whether the scheduler puts the pod off for a volume.
bool waits_for_volume(const PodState& state);

// "it does not run after 120 s (ContainerCreating); FailedMount: …; `kubectl …`". Events are included if the
// credentials may read them: the shipped role does not permit that.
std::string why_not_started(Services& services, const Record& record, const PodState& state,
                            const Budget& budget);

}  // namespace isogate::k8s
