// Plain HTTP to a port of a sandbox, by the name of the host: {port}-{agent}.{ports.domain}. Each request has
// its own connection; bytes pass in both directions, also after a protocol upgrade (WebSocket).
#pragma once

#include <string_view>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

// True: its Host is below `domain`, and the exchange has its route, agent and port. Throws ApiError
// invalid_request where it names no port there. An empty domain: never.
bool route_to_port(Exchange& exchange, std::string_view domain);

}  // namespace isogate::front
