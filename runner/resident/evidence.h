// What Runner::measure() does not tell: the network, tried from here, and the limits of this container.
// Programs have this process's own network and cgroups, so what it finds is what they would.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "isogate/backend.h"

namespace isogate::resident {

// ISOGATE_EVIDENCE_NETWORK and the REACHED bits. The metadata addresses of the usual clouds are tried, and
// with a port the gateway: at its own address, on the loopback, and at the default route's first hop, which
// is where a container finds its host. Takes 300 ms at most.
uint32_t try_network(const std::string& gateway_address, uint32_t gateway_port);

// Of this process's own cgroups, v1 and v2; 0: none, or not to be seen from inside.
isogate_limits limits_in_force();

// The first hops of default routes in /proc/net/route, numeric. Pure.
std::vector<std::string> first_hops(std::string_view routes);

}  // namespace isogate::resident
