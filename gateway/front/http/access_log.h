// The log's line per request. See docs/operations.md for its fields.
#pragma once

#include <string>

#include "gateway/front/http/peer_lines.h"
#include "gateway/front/http/server.h"

namespace isogate::front {

// `operation`: of the route, or "none". A request that any peer can send at any rate (without a principal, or
// answered 400 or 429) may be counted in `peer_lines` instead.
void log_request(PeerLines& peer_lines, const Exchange& exchange, std::string_view operation,
                 const std::string& peer, const RequestEnd& end);

}  // namespace isogate::front
