// The E2B listener: what a request to `e2b.listen` means, who may make it, and the form of its refusal. It
// serves E2B's control plane and its envd together: they share no path. The front's one thread.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gateway/front/e2b/record.h"
#include "gateway/front/e2b/watchers.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/http/server.h"
#include "lib/hash.h"

namespace isogate::front {

struct App;

namespace e2b {

// How an SDK described a process when it started it.
struct ProcessInfo {
  std::string tenant, cmd, cwd, tag;
  std::vector<std::string> args;
  Pairs env;
};

struct ListenerState {
  std::map<std::string, ProcessInfo> processes;  // by exec_id; forgotten with their execs
  Watchers watchers;
  std::unordered_map<std::string, std::string> tokens;  // by sandbox, of those that were looked through
};

// Sets exchange.route and what its target holds. Throws ApiError.
void route(const App& app, Exchange& exchange);
// Sets exchange.principal, and for a call of a sandbox exchange.agent_param. Throws ApiError.
void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, const std::string& peer);
std::pair<unsigned, std::string> refusal(const Exchange& exchange, const ApiError& error);

// The signature in a file's URL, in place of the sandbox's token (files.cc): "v1_" and a hash over the
// request and the token. nullopt: it has no such form.
struct Signature {
  std::string presented;  // the hash that it claims, as base64 without `=`
  Sha256 before;          // of what stands before the token
  std::string after;
  [[nodiscard]] bool fits(const std::string& token) const;
};
std::optional<Signature> signature_in(const Exchange& exchange);
// Throws ApiError: it was one, until now.
void check_expiration(const Exchange& exchange);
// The version of envd that SDKs are told: they derive the available features from it.
inline constexpr std::string_view kEnvdVersion = "0.5.7";

}  // namespace e2b
}  // namespace isogate::front
