// The part that Runner::measure() leaves out: the network, tried from here, and the limits of this
// container. Programs share this process's network and cgroups, so its findings apply to them.
#pragma once

#include <cstdint>
#include <string>

#include "isogate/backend.h"
#include "lib/limits.h"

namespace isogate::agent {

// Where a gateway listens: as in isogate_evidence_request.
struct Listeners {
  std::string address;
  uint32_t port = 0;  // 0: nowhere
  std::string all;
};

// The REACHED bits, and ISOGATE_EVIDENCE_NETWORK if every address was really tried. It tries the metadata
// addresses of the usual clouds, and each listener of the gateway: at its own address, on the loopback, and
// at the default route's first hop, where a container finds its host. Takes half a second at most.
uint32_t try_network(const Listeners& gateway);

// Of this process's own cgroups, v1 and v2; 0: none, or not visible from inside.
Limits limits_in_force();

}  // namespace isogate::agent
