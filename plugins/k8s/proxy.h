// The way through an HTTP proxy, RFC 9110 9.3.6. For transport.cc alone.
#pragma once

#include "plugins/k8s/access.h"
#include "runner/fd.h"

namespace isogate::k8s {

// Asks the proxy behind `socket` for a connection to access.host; what it takes of the socket ends with its
// answer's head. Throws ApiError.
void connect_through(const Fd& socket, const ClusterAccess& access, const Budget& budget);

}  // namespace isogate::k8s
