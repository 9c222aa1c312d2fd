// The Unix user that an SDK of E2B names: by `Authorization: Basic`, which is no credential there, or in a
// query.
#pragma once

#include <string>

#include "gateway/front/http/exchange.h"

namespace isogate::front::e2b {

// E2B's default user, and none, are the sandbox's own: empty.
inline constexpr std::string_view kDefaultUser = "user";
std::string user_named(std::string_view name);
std::string user_of(const Exchange& exchange);

}  // namespace isogate::front::e2b
