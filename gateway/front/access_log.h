// The log's line per request. See docs/operations.md for its fields.
#pragma once

#include <string>

#include "gateway/front/server.h"

namespace isogate::front {

// `operation`: of the route, or "none".
void log_request(const Exchange& exchange, std::string_view operation, const std::string& peer,
                 const RequestEnd& end);

}  // namespace isogate::front
