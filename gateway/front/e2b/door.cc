#include "gateway/front/e2b/door.h"

#include <nlohmann/json.hpp>

#include "gateway/front/api/access.h"
#include "gateway/front/api/port_proxy.h"
#include "gateway/front/e2b/routes.h"
#include "gateway/front/e2b/rpc.h"
#include "gateway/front/e2b/sandbox.h"
#include "gateway/front/http/json_answer.h"
#include "lib/hash.h"

namespace isogate::front::e2b {
namespace {

constexpr std::string_view kEnvdPort = "49983";

const std::vector<Route>& routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> made;
    for (const auto& rows : {control_routes(), process_routes(), filesystem_routes(), file_routes()})
      made.insert(made.end(), rows.begin(), rows.end());
    for (Route& row : made) row.any_query = true;
    return made;
  }();
  return all;
}

// Of hashes, so that how long it takes says nothing of the token.
bool is_token(std::string_view presented, const Record& record) {
  return !presented.empty() && presented.size() <= kMaxTokenBytes &&
         sha256(presented) == sha256(record.token);
}

// A sandbox's own token, or what the native door would take.
void authenticate_for_sandbox(App& app, Exchange& exchange, const ListenerInfo& listener,
                              const std::string& peer, std::string_view token) {
  const Found found = find_sandbox(app, exchange.agent_param);
  const bool with_signature = token.empty() && is_signed(exchange, found.record);
  if (with_signature) check_expiration(exchange);
  if (with_signature || is_token(token, found.record)) {
    exchange.principal = {found.sandbox->row.tenant, "token of " + exchange.agent_param};
    return;
  }
  if (!token.empty() || query_parameter(exchange.query, "signature") || !exchange.has_header("Authorization"))
    refuse_key(app, peer,
               "this is not the sandbox's token: send what it was created with as `X-Access-Token`");
  // A key in place of the token. SDKs send a user's name by Basic, which is none.
  front::authenticate(app, exchange, listener, -1, peer);
  if (exchange.principal.tenant != found.sandbox->row.tenant)
    throw ApiError{.code = Code::kSandboxNotFound, .message = "the sandbox was not found"};
}

}  // namespace

void route(const App& app, Exchange& exchange, std::string_view method, std::string_view target) {
  const HostName host = host_name(app, exchange);
  if (!host.port.empty() && host.port != kEnvdPort && route_to_port(exchange, app.config.e2b.domain)) return;
  route_exchange(exchange, method, target, routes());
}

void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, const std::string& peer) {
  switch (exchange.route->needs) {
    case Needs::kKey:
      if (const auto key = exchange.header("X-API-Key"); !key.empty()) {
        exchange.principal = by_key(app, key, peer);
        return;
      }
      return front::authenticate(app, exchange, listener, -1, peer);
    case Needs::kSandboxToken:
      exchange.agent_param = sandbox_named(app, exchange);
      return authenticate_for_sandbox(app, exchange, listener, peer, exchange.header("X-Access-Token"));
    case Needs::kKeyOfPort:
      return authenticate_for_sandbox(app, exchange, listener, peer,
                                      exchange.header("E2b-Traffic-Access-Token"));
    case Needs::kKeyOrListener:
    case Needs::kNothing:
      return;
  }
}

std::pair<unsigned, std::string> refusal(const Exchange& exchange, const ApiError& error) {
  const bool of_sandbox = exchange.route != nullptr && exchange.route->needs == Needs::kSandboxToken;
  nlohmann::ordered_json body;
  unsigned status = error.http_status();
  if (of_sandbox && error.code == Code::kSandboxNotFound) {
    // What E2B's proxy says of a sandbox that has ended; SDKs tell it by the status.
    status = 502;
    body = {{"sandboxId", exchange.agent_param}, {"message", error.message}, {"code", status}};
  } else if (exchange.route != nullptr && is_rpc(*exchange.route)) {
    const RpcCode code = rpc_code(error);
    status = code.status;
    body = {{"code", code.text}, {"message", error.message}};
  } else {
    body = {{"code", status}, {"message", error.message}};
  }
  return {status, json_text(body) + "\n"};
}

}  // namespace isogate::front::e2b
