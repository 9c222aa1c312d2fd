// The sandboxes of the E2B listener: found by their id, which is their agent's name, and who may call them.
// The front's one thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "gateway/front/app.h"
#include "gateway/front/e2b/record.h"
#include "gateway/front/http/exchange.h"

namespace isogate::front::e2b {

struct Found {
  std::shared_ptr<Sandbox> sandbox;
  Record record;
};

// Of the tenant. Throws ApiError sandbox_not_found: it does not exist, has expired, or was not created by
// the E2B listener; or its creation is not complete.
Found find_sandbox(const App& app, const std::string& tenant, const std::string& id);
// Of any tenant. nullopt: the same.
std::optional<Found> look_for_sandbox(const App& app, const std::string& id);
// This one. nullopt: the same, or it is null.
std::optional<Found> found_in(std::shared_ptr<Sandbox> sandbox);
ApiError no_such_sandbox(const std::string& id);

// The token: the id of its sandbox, then a secret. Some calls name their sandbox only by the token. The id
// is derived from the secret, so that the token of an ended sandbox does not count as a wrong one.
std::string new_token();
std::string sandbox_of_token(std::string_view token);  // empty: it is none
bool was_made_for(std::string_view token, std::string_view id);

// The sandbox that a request names by its header, its token, its Host or its signature. Empty: none, and the
// caller has only a signature. Throws ApiError; where there are over 1,000 sandboxes, a peer that has only a
// signature and has sent many wrong keys must wait.
std::string sandbox_named(const App& app, const Exchange& exchange, const std::string& peer);

}  // namespace isogate::front::e2b
