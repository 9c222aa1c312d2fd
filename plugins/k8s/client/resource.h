// Resources of a cluster, by name. Values.
#pragma once

#include <string>

namespace isogate::k8s {

// A resource, or a collection where `name` is empty. Names are checked, so they may come from anywhere.
struct Resource {
  std::string group_version;  // "v1", "apps/v1", "coordination.k8s.io/v1"
  std::string name_space;     // empty: of the cluster, or all of them
  std::string plural;         // "pods"
  std::string name = {};
  std::string subresource = {};  // "exec", "status"

  // "/api/v1/namespaces/x/pods/y"; throws ISOGATE_INVALID_ARGUMENT for an impossible name.
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string text() const;  // "pods/exec `x/y`", for messages
};

}  // namespace isogate::k8s
