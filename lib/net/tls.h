// TLS over a connected socket, by OpenSSL. For transport.cc alone.
#pragma once

#include <memory>

#include "lib/net/transport.h"

namespace isogate::net {

// Shakes hands within the budget, by target.tls. With `verify` the authority has to have signed the server's
// certificate, which has to name the server.
std::unique_ptr<Transport> start_tls(Fd socket, const Target& target, const Budget& budget);

}  // namespace isogate::net
