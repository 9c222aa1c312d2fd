// TLS over a connected socket, by OpenSSL. For transport.cc only.
#pragma once

#include <memory>

#include "lib/net/transport.h"

namespace isogate::net {

// Completes the handshake within the budget, by target.tls. With `verify` the authority must have signed the
// server's certificate, which must name the server.
std::unique_ptr<Transport> start_tls(Fd socket, const Target& target, const Budget& budget);

}  // namespace isogate::net
