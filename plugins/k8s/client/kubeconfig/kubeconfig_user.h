// The user of a kubeconfig's context: credentials and impersonation. For kubeconfig.cc.
#pragma once

#include "plugins/k8s/client/access.h"
#include "plugins/k8s/client/kubeconfig/kubeconfig_entry.h"

namespace isogate::k8s {

// Fills access.credentials and access.headers. `cluster`: passed to a plugin with provideClusterInfo.
void take_user(ClusterAccess& access, const KubeconfigEntry& user, const KubeconfigEntry& cluster);

}  // namespace isogate::k8s
