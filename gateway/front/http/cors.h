// Pages of other origins in a browser: those that `cors.origins` lists may call the gateway and read its
// responses, with a key like any client; no other page gets permission. Fetch standard, CORS protocol.
#pragma once

#include <string>
#include <vector>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

// Sets exchange.cors_origin when the request's Origin is listed.
void look_at_origin(Exchange& exchange, const std::vector<std::string>& listed);

// Of an OPTIONS request.
bool is_preflight(const Exchange& exchange);

// 204 with the permission, or permission_denied. Runs nothing and needs no key: browsers send none.
Task<void> answer_preflight(Exchange& exchange);

}  // namespace isogate::front
