// The sandboxes of the door for E2B's SDKs: found by their id alone, which is their agent's name, and who may
// call them. The front's one thread.
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

// Of the tenant. Throws ApiError sandbox_not_found: there is none, it has expired, or this door has not made
// it.
Found find_sandbox(const App& app, const std::string& tenant, const std::string& id);
// Of any tenant. nullopt: the same.
std::optional<Found> look_for_sandbox(const App& app, const std::string& id);
ApiError no_such_sandbox(const std::string& id);

// A secret behind the id of its sandbox: there are calls that name it by nothing else. The id is made from
// the secret, so that the token of a sandbox that has ended is not taken for a wrong one.
std::string new_token();
std::string sandbox_of_token(std::string_view token);  // empty: it is none
bool was_made_for(std::string_view token, std::string_view id);

// What a Host below `e2b.domain` names: PORT-SANDBOX. Empty where it is no such name.
struct HostName {
  std::string port, sandbox;
};
HostName host_name(const App& app, const Exchange& exchange);
HostName host_name(std::string_view host, std::string_view domain);

// Which one a request is for that names it by its header, its token, its Host or its signature. Empty: none,
// and who asks has no more than a signature. Throws ApiError.
std::string sandbox_named(const App& app, const Exchange& exchange);

}  // namespace isogate::front::e2b
