// Plain HTTP to a port of a sandbox, by the name of the host: {port}-{agent}.{ports.domain}; on the E2B
// listener also by headers. Each request has its own connection; bytes pass in both directions, also after a
// protocol upgrade (WebSocket).
#pragma once

#include <string_view>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

// True: its Host is below `domain`, and the exchange has its route, agent and port. Throws ApiError
// invalid_request where it names no port there. An empty domain: never.
bool route_to_port(Exchange& exchange, std::string_view domain);
// The exchange has its route to that port of that agent. Throws ApiError invalid_request: `from`, in which
// both were named, is wrong.
void route_to_port_of(Exchange& exchange, std::string_view agent, std::string_view port,
                      const std::string& from);

}  // namespace isogate::front
