// The door for E2B's SDKs: what a request to `e2b.listen` means, who may make it, and what its refusal looks
// like. E2B's control plane and its envd in one: their paths have none in common. The front's one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

#include "gateway/front/e2b/record.h"
#include "gateway/front/e2b/watchers.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/http/server.h"

namespace isogate::front {

struct App;

namespace e2b {

// What an SDK said of a process when it started it.
struct ProcessInfo {
  std::string tenant, cmd, cwd, tag;
  std::vector<std::string> args;
  std::vector<std::pair<std::string, std::string>> env;
};

struct Door {
  std::map<std::string, ProcessInfo> processes;  // by exec_id; forgotten with their execs
  Watchers watchers;
  std::unordered_map<std::string, std::string> tokens;  // by sandbox, of those that were looked through
};

// Sets exchange.route and what its target holds. Throws ApiError.
void route(const App& app, Exchange& exchange, std::string_view method, std::string_view target);
// Sets exchange.principal, and for a call of a sandbox exchange.agent_param. Throws ApiError.
void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, const std::string& peer);
std::pair<unsigned, std::string> refusal(const Exchange& exchange, const ApiError& error);

// What the URL of a file carries in place of the sandbox's token (files.cc): "v1_" and the hash of what it is
// for, with the token in it. nullopt: nothing that could be one.
struct Signature {
  std::string hash, before, after;
  [[nodiscard]] bool fits(const std::string& token) const;
};
std::optional<Signature> signature_in(const Exchange& exchange);
// Throws ApiError: it was one, until now.
void check_expiration(const Exchange& exchange);
// What SDKs think of as the version of envd: by it they know what there is.
inline constexpr std::string_view kEnvdVersion = "0.5.7";

}  // namespace e2b
}  // namespace isogate::front
