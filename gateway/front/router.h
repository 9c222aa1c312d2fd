// A request line to a route and its parameters. Pure.
#pragma once

#include <string>
#include <string_view>

#include "gateway/front/routes.h"

namespace isogate::front {

struct Routed {
  Route route{};
  std::string agent, path;  // decoded exactly once
  std::string_view query;
};

// Throws ApiError: not_found, method_not_allowed with Allow, invalid_request.
Routed route_target(std::string_view method, std::string_view target);

const RouteRow& row_of(Route route);

// Throws ApiError invalid_request for a parameter that this call does not know, or that is there twice. Calls
// without a key take any.
void check_query(Route route, std::string_view query);

}  // namespace isogate::front
