// The door for E2B's SDKs: what a request to `e2b.listen` means, who may make it, and what its refusal looks
// like. E2B's control plane and its envd in one: their paths have none in common. The front's one thread.
#pragma once

#include <map>
#include <memory>
#include <string>
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
};

// Sets exchange.route and what its target holds. Throws ApiError.
void route(const App& app, Exchange& exchange, std::string_view method, std::string_view target);
// Sets exchange.principal, and for a call of a sandbox exchange.agent_param. Throws ApiError.
void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, const std::string& peer);
std::pair<unsigned, std::string> refusal(const Exchange& exchange, const ApiError& error);

// Whether the URL of a file carries what stands for the sandbox's token (files.cc).
bool is_signed(const Exchange& exchange, const Record& record);
// Throws ApiError: it did, until now.
void check_expiration(const Exchange& exchange);
// What SDKs think of as the version of envd: by it they know what there is.
inline constexpr std::string_view kEnvdVersion = "0.5.7";

}  // namespace e2b
}  // namespace isogate::front
