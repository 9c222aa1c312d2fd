// TLS over a connected socket, by OpenSSL. For transport.cc alone.
#pragma once

#include <memory>

#include "plugins/k8s/transport.h"
#include "runner/fd.h"

namespace isogate::k8s {

// Shakes hands within the budget, TLS 1.2 or newer. With access.verify the certificate has to be signed by
// access.authority and be made out to access.server_name, or access.host. Keys under a passphrase are
// refused.
std::unique_ptr<Transport> start_tls(Fd socket, const ClusterAccess& access, const Identity& identity,
                                     const Budget& budget);

}  // namespace isogate::k8s
