// The Unix user that an SDK of E2B names: by `Authorization: Basic`, which is no credential there, or in a
// query.
#pragma once

#include <string>

#include "gateway/config/config.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front::e2b {

// Empty: the sandbox's own, which is E2B's default user, and none. It is also what sandboxes call it that
// have no other name for it (runner/uid/users.h), unless a backend's `users` lists a user of that name.
inline constexpr std::string_view kDefaultUser = "user", kOwnUser = "agent";
std::string user_named(const Config& config, std::string_view name);
std::string user_of(const Config& config, const Exchange& exchange);

}  // namespace isogate::front::e2b
