// Every call of the HTTP API: its row, and how a request line is matched to it. Each resource has its rows
// beside their handlers (execs.cc, files.cc, …); the router, the check of a body's fields and the comparison
// with docs/openapi.yaml read them. The front's one thread; everything except the handlers is pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/front/http/exchange.h"

namespace isogate::front {

struct App;

enum class Needs {
  kKey,            // a principal
  kKeyOrListener,  // a principal, except on `metrics.listen`, which needs none
  kKeyOfPort,      // a principal; X-Isogate-Key may carry the key, and the query is the program's
  kSandboxToken,   // the token of the sandbox that it is for: requests of E2B's SDKs
  kNothing,        // served on every listener, with any query string
};

// As the fields of a route: any.
inline constexpr std::string_view kAnyField[] = {"*"};
// The fields of a route whose handler checks the body: any JSON value, also with NUL characters in
// strings.
inline constexpr std::string_view kAnyValue[] = {"*", "[]"};

struct Route {
  std::string_view method;
  std::string_view path;  // as in docs/openapi.yaml; {path} may hold slashes, other parameters none. One of
                          // {path} and {port} at most, and one other
  std::string_view operation_id;
  // Takes the exchange to its answer, or throws ApiError.
  Task<void> (*handle)(App& app, Exchange& exchange);
  std::span<const std::string_view> fields = {};      // of the JSON body; empty: no JSON body
  std::span<const std::string_view> parameters = {};  // of the query string
  Needs needs = Needs::kKey;
  bool any_query = false;        // of clients that this project does not define
  bool also_with_slash = false;  // at the end of its path
};

// All of them; they live as long as the process.
const std::vector<Route>& routes();

// Those of one resource, in the source of its name.
std::span<const Route> exec_routes();
std::span<const Route> long_exec_routes();
std::span<const Route> file_routes();
std::span<const Route> raw_file_routes();
std::span<const Route> archive_routes();
std::span<const Route> watch_routes();
std::span<const Route> sandbox_routes();
std::span<const Route> port_routes();
std::span<const Route> orphan_routes();
std::span<const Route> operation_routes();
std::span<const Route> mcp_routes();  // MCP

struct Routed {
  const Route* route = nullptr;
  std::string agent, path;  // {path} or {port}, and any other parameter; decoded exactly once
  std::string_view query;
};

// Throws ApiError: not_found, method_not_allowed with Allow, invalid_request.
Routed route_target(std::string_view method, std::string_view target,
                    const std::vector<Route>& table = routes());

// Fills in the exchange's route, and what its target holds. Throws the same.
void route_exchange(Exchange& exchange, const std::vector<Route>& table = routes());

// Throws ApiError invalid_request for a parameter that this call does not know, or that occurs twice. Calls
// that need no principal accept any.
void check_query(const Route& route, std::string_view query);

// One parameter of a query string, decoded; nullopt when absent.
std::optional<std::string> query_parameter(std::string_view query, std::string_view name);
// One that is true or false, and `otherwise` when absent. Throws ApiError invalid_request.
bool query_flag(std::string_view query, std::string_view name, bool otherwise = false);

}  // namespace isogate::front
