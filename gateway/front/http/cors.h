// Pages of other origins in a browser: the ones that `cors.origins` lists may call the gateway and read its
// answers, with a key like everybody; no other page gets a permission. Fetch standard, CORS protocol.
#pragma once

#include <string>
#include <vector>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

// Sets exchange.cors_origin when the request's Origin is listed.
void look_at_origin(Exchange& exchange, const std::vector<std::string>& listed);

// Of an OPTIONS request.
bool is_preflight(const Exchange& exchange);

// 204 with the permission, or permission_denied without. Runs nothing and asks for no key: browsers send
// none.
Task<void> answer_preflight(Exchange& exchange);

}  // namespace isogate::front
