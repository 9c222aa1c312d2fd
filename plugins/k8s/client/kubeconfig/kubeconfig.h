// The texts of kubeconfig files, merged, to a ClusterAccess. For access.cc.
#pragma once

#include <string>
#include <vector>

#include "plugins/k8s/client/access.h"

namespace isogate::k8s {

struct KubeconfigFile {
  std::string path, text;
};

// In the order of the list. Reads the certificate files that the chosen context names. Throws sdk::Error as
// load_access() does.
ClusterAccess access_from(const std::vector<KubeconfigFile>& files, const AccessConfig& config);

}  // namespace isogate::k8s
