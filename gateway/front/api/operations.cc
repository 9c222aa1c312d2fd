#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gateway/base/openapi.h"
#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/backends/backend_report.h"
#include "gateway/front/http/json_answer.h"

namespace isogate::front {
namespace {

using nlohmann::ordered_json;

ordered_json check_json(std::string name, bool ok, bool required, std::string_view state) {
  return {{"name", std::move(name)}, {"ok", ok}, {"required", required}, {"state", state}};
}

// Anybody may ask: names and states, no reasons. GET /backends has those.
ordered_json checks_of(const App& app, const Decision& decision) {
  const bool writable = !app.state->last_error();
  const bool room = app.spool.free_bytes().value_or(UINT64_MAX) >= SpoolFile::kLeftFree;
  const bool chosen = decision.chosen.has_value();
  ordered_json list = {
      check_json("accepting", !app.draining, true, app.draining ? "draining" : "serving"),
      check_json("database", writable, false, writable ? "writable" : "not writable"),
      check_json("state_disk", room, false, room ? "has room" : "nearly full"),
      check_json("backend", chosen, true, chosen ? "one can be chosen" : "none can be chosen")};
  const auto& all = app.backends.all();
  for (size_t i = 0; i < all.size(); ++i)
    list.push_back(check_json("backend/" + all[i]->config.name, decision.verdicts[i].eligible, false,
                              verdict_of(all[i]->state, all[i]->probe)));
  return list;
}

Task<void> handle_backends(App& app, Exchange& exchange) {
  const std::string& tenant = exchange.principal.tenant;
  const Decision decision = app.backends.decide({.tenant = tenant});
  ordered_json list = ordered_json::array();
  const auto& all = app.backends.all();
  for (size_t i = 0; i < all.size(); ++i) {
    const Backend& one = *all[i];
    list.push_back(backend_json({one.config, one.hello, one.probe, one.state, one.reason, one.generation,
                                 one.restarts, one.breakers.of(tenant).last_failure()},
                                decision.verdicts[i], decision));
  }
  ordered_json body = {{"backends", std::move(list)}, {"policy", policy_json(app.backends.policy())}};
  co_await send_json(exchange, std::move(body));
}

ordered_json alive() { return {{"status", "ok"}, {"version", ISOGATE_VERSION}}; }

// healthz and livez.
Task<void> handle_health(App&, Exchange& exchange) {
  ordered_json body = alive();
  co_await send_json(exchange, std::move(body));
}

Task<void> handle_readyz(App& app, Exchange& exchange) {
  const Decision decision = app.backends.decide({});
  ordered_json checks;
  if (query_parameter(exchange.query, "verbose")) checks["checks"] = checks_of(app, decision);
  const std::string details = checks.is_null() ? std::string() : json_text(checks);
  if (app.draining || !decision.chosen) {
    ApiError refusal = app.draining ? draining() : refusal_of(decision);
    if (!details.empty()) refusal.details_json = details;
    throw refusal;
  }
  ordered_json body = alive();
  if (!checks.is_null()) body.update(checks);
  co_await send_json(exchange, std::move(body));
}

// Of disks a key's tenant sees its own alone; the listener for metrics is the operator's.
Task<void> handle_metrics(App& app, Exchange& exchange) {
  const std::string& tenant = exchange.principal.tenant;
  co_await app.sandboxes.disks.look(tenant);
  std::vector<TenantDisk> disks;
  for (const auto& [name, total] : app.sandboxes.disks.totals(tenant))
    disks.push_back({name, total.used_bytes, total.limit_bytes});
  size_t port_connections = 0;
  for (const auto& [id, sandbox] : app.sandboxes.records.all()) port_connections += sandbox->ports.size();
  const std::string text = app.metrics.text({.connections = app.connections ? app.connections() : 0,
                                             .sandboxes = app.sandboxes.records.all().size(),
                                             .execs_running = app.admission.running(),
                                             .execs_waiting = app.admission.waiting(),
                                             .held_bytes = app.memory.held(),
                                             .spool_bytes = app.spool.quota.held(),
                                             .port_connections = port_connections,
                                             .state_free_bytes = app.spool.free_bytes(),
                                             .disks = std::move(disks)});
  co_await exchange.send(200, "text/plain; version=0.0.4; charset=utf-8", text);
}

Task<void> handle_openapi(App&, Exchange& exchange) {
  co_await exchange.send(200, "application/json", openapi_json());
}

constexpr std::string_view kReadyzParameters[] = {"verbose"};

constexpr Route kOperationRoutes[] = {
    {"GET", "/backends", "listBackends", handle_backends},
    {"GET", "/healthz", "healthz", handle_health, {}, {}, Needs::kNothing},
    {"GET", "/livez", "livez", handle_health, {}, {}, Needs::kNothing},
    {"GET", "/readyz", "readyz", handle_readyz, {}, kReadyzParameters, Needs::kNothing},
    {"GET", "/metrics", "metrics", handle_metrics, {}, {}, Needs::kKeyOrListener},
    {"GET", "/openapi.json", "openapi", handle_openapi},
};

}  // namespace

std::span<const Route> operation_routes() { return kOperationRoutes; }

}  // namespace isogate::front
