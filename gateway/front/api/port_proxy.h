// Plain HTTP to a port of a sandbox, by the name of the host: {port}-{agent}.{ports.domain}; on the E2B
// listener also by headers. Each request has its own connection; bytes pass in both directions, also after a
// protocol upgrade (WebSocket).
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

// What a Host below `domain` names: PORT-AGENT. Both are empty where `name` has no dash. nullopt: it is not
// below `domain`, or that is empty. Valid as long as `host`. A pure function.
struct PortHost {
  std::string_view name, port, agent;
};
std::optional<PortHost> port_host(std::string_view host, std::string_view domain);

// True: its Host is below `domain`, and the exchange has its route, agent and port. Throws ApiError
// invalid_request where it names no port there. An empty domain: never.
bool route_to_port(Exchange& exchange, std::string_view domain);
// The exchange has its route to that port of that agent. Throws ApiError invalid_request: `from`, in which
// both were named, is wrong.
void route_to_port_of(Exchange& exchange, std::string_view agent, std::string_view port,
                      const std::string& from);

}  // namespace isogate::front
