// The Kubernetes cluster on which the backend `k8s` is tested, started by tests/engines/kubernetes.sh.
// ISOGATE_TEST_KUBERNETES, or the variable that ISOGATE_TEST_CLUSTER names, has the path of the
// administrator's kubeconfig.
#pragma once

#include <string>

namespace isogate::test {

inline constexpr const char* kSandboxNamespace = "isogate-sandboxes";

std::string cluster_kubeconfig();  // the administrator's; empty: there is none
std::string cluster_obstacle();    // why there is none; empty: there is one
std::string cluster_directory();
bool cluster_enforces_policies();  // now: kubernetes.sh policies
bool cluster_enforces_labels();    // Pod Security, by its version

// Members of the backend's `config`, in YAML's flow style: the product's own account with the shipped role,
// the build's own runner as an image; `tolerant`: also on a network that enforces nothing. Imports the image
// once.
std::string cluster_config(bool tolerant = !cluster_enforces_policies());

std::string cluster_runner_image();  // its name on the node

}  // namespace isogate::test
