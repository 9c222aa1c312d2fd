// Files of the operator that a kubeconfig, or the pod's own mounts, name. Never a tenant's.
#pragma once

#include <optional>
#include <string>

#include "plugins/k8s/credentials.h"

namespace isogate::k8s {

// All of a regular file of at most 1 MiB; nothing when there is none. Never blocks. Throws sdk::Error.
std::optional<std::string> read_operator_file(const std::string& path);

// The text, or what its file holds now. Throws ISOGATE_INVALID_ARGUMENT naming `field` and the file.
std::string read_secret(const Secret& secret, const std::string& field);

}  // namespace isogate::k8s
