#include "gateway/front/e2b/listener.h"

#include <nlohmann/json.hpp>

#include "gateway/front/api/access.h"
#include "gateway/front/api/port_proxy.h"
#include "gateway/front/e2b/routes.h"
#include "gateway/front/e2b/rpc.h"
#include "gateway/front/e2b/sandbox.h"
#include "gateway/front/http/json_answer.h"
#include "lib/hash.h"
#include "lib/redact.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

constexpr std::string_view kEnvdPort = "49983";

const std::vector<Route>& routes() {
  static const std::vector<Route> all = [] {
    std::vector<Route> made;
    for (const auto& rows : {process_routes(), filesystem_routes(), file_routes()})
      made.insert(made.end(), rows.begin(), rows.end());
    for (Route& row : made) row.needs = Needs::kSandboxToken;
    made.insert(made.end(), control_routes().begin(), control_routes().end());
    for (Route& row : made) row.any_query = true;
    return made;
  }();
  return all;
}

// Of hashes, so that how long it takes says nothing of the token.
bool is_token(std::string_view presented, const std::string& token) {
  return !presented.empty() && presented.size() <= kMaxTokenBytes && sha256(presented) == sha256(token);
}

// Who has nothing that opens the sandbox, or did, is answered the same where there is none.
void authenticate_for_sandbox(App& app, Exchange& exchange, const ListenerInfo& listener,
                              const std::string& peer) {
  const bool of_port = exchange.route->needs == Needs::kKeyOfPort;
  const auto token = exchange.header(of_port ? "E2b-Traffic-Access-Token" : "X-Access-Token");
  const auto signature = signature_in(exchange);
  const std::string& id = exchange.agent_param;
  const auto opens = [&](const Record& record) {
    return is_token(token, of_port ? traffic_token(record) : record.token);
  };
  if (token.empty() && !signature) {
    // A key in place of the token. SDKs send a user's name by Basic, which is none.
    if (!exchange.has_header("Authorization"))
      refuse_key(
          app, peer,
          of_port ? "a token is needed: send the sandbox's traffic token as `E2b-Traffic-Access-Token`, or "
                    "`Authorization: Bearer KEY`"
                  : "a token is needed: send what the sandbox was created with as `X-Access-Token`");
    front::authenticate(app, exchange, listener, -1, peer);
    (void)find_sandbox(app, exchange.principal.tenant, id);
    return;
  }
  const auto found = look_for_sandbox(app, id);
  if (token.empty()) {
    if (!found || !signature->fits(found->record.token)) refuse_key(app, peer, "the signature does not fit");
    check_expiration(exchange);
  } else if (!found || !opens(found->record)) {
    if (!of_port && was_made_for(token, id)) throw no_such_sandbox(id);
    refuse_key(app, peer,
               of_port ? "`E2b-Traffic-Access-Token` is not that of the sandbox, or the sandbox has ended"
                       : "`X-Access-Token` is not that of the sandbox");
  }
  exchange.principal = {
      .tenant = found->sandbox->row.tenant, .key_name = "token of " + id, .of_sandbox = true};
  exchange.agent = id;
}

}  // namespace

// A Host below `e2b.domain` names the port; else E2b-Sandbox-Port does. envd's own, or none, is this
// listener.
void route(const App& app, Exchange& exchange) {
  const auto host = port_host(exchange.header("Host"), app.config.e2b.domain);
  const bool by_host = host && !host->port.empty();
  const std::string_view port = by_host ? host->port : exchange.header("E2b-Sandbox-Port");
  if (!port.empty() && port != kEnvdPort) {
    if (by_host)
      return route_to_port_of(
          exchange, host->agent, port,
          "the host `" + printable(host->name, 80) + "` below e2b.domain must be PORT-SANDBOX");
    return route_to_port_of(exchange, exchange.header("E2b-Sandbox-Id"), port,
                            "`E2b-Sandbox-Port` must be a port, and `E2b-Sandbox-Id` name its sandbox");
  }
  const std::string_view target = exchange.target();
  try {
    route_exchange(exchange, routes());
  } catch (ApiError& error) {
    if (error.code == Code::kNotFound)
      error.message = "no such call: " + printable(redact(target.substr(0, target.find('?'))), 200) +
                      "; this listener serves E2B's SDKs, and `listen` the native API";
    throw;
  }
}

void authenticate(App& app, Exchange& exchange, const ListenerInfo& listener, const std::string& peer) {
  switch (exchange.route->needs) {
    case Needs::kKey:
      if (const auto key = exchange.header("X-API-Key"); !key.empty()) {
        exchange.principal = by_key(app, exchange, listener, key, peer);
        return;
      }
      return front::authenticate(app, exchange, listener, -1, peer);
    case Needs::kSandboxToken:
      exchange.agent_param = sandbox_named(app, exchange, peer);
      return authenticate_for_sandbox(app, exchange, listener, peer);
    case Needs::kKeyOfPort:
      return authenticate_for_sandbox(app, exchange, listener, peer);
    case Needs::kKeyOrListener:
    case Needs::kNothing:
      return;
  }
}

std::pair<unsigned, std::string> refusal(const Exchange& exchange, const ApiError& error) {
  const bool of_sandbox = exchange.route != nullptr && exchange.route->needs == Needs::kSandboxToken;
  const bool of_port = exchange.route != nullptr && exchange.route->needs == Needs::kKeyOfPort;
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
    if (of_port && error.code == Code::kUnauthenticated) status = 403;  // as E2B's proxy answers
    if (of_sandbox && error.code == Code::kIsDirectory) status = 400;   // to SDKs it is a wrong argument
    body = {{"code", status}, {"message", error.message}};
  }
  return {status, json_text(body) + "\n"};
}

}  // namespace isogate::front::e2b
