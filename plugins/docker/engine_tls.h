// TLS over a connected socket, by OpenSSL. For engine_transport.cc alone.
#pragma once

#include <memory>

#include "plugins/docker/engine_transport.h"
#include "runner/fd.h"

namespace isogate::docker {

// Shakes hands within the budget. With files.verify the certificate has to be signed by the authority and be
// made out to address.host. The files are read each time, so that renewed ones are taken.
std::unique_ptr<Transport> start_tls(Fd socket, const EngineAddress& address, const Budget& budget);

}  // namespace isogate::docker
