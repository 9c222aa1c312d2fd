#include "gateway/base/openapi.h"
#include "gateway/front/handlers.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace {

void member(std::string& out, std::string_view key, std::string_view text) {
  if (out.back() != '{') out += ',';
  append_json_string(out, key);
  out += ':';
  append_json_string(out, is_utf8(text) ? std::string(text) : printable(text, 1000));
}

void raw_member(std::string& out, std::string_view key, std::string_view json) {
  if (out.back() != '{') out += ',';
  append_json_string(out, key);
  out.append(":").append(json);
}

std::string_view truth(bool value) { return value ? "true" : "false"; }

std::string_view verdict_of(const Backend& backend) {
  switch (backend.state) {
    case BackendState::kStarting:
      return "starting";
    case BackendState::kDown:
    case BackendState::kFailed:
      return "down";
    case BackendState::kQuarantined:
      return "quarantined";
    case BackendState::kUp:
      break;
  }
  if (!backend.probe) return "starting";
  if (backend.probe->verdict == ISOGATE_PROBE_AVAILABLE) return "available";
  if (backend.probe->verdict == ISOGATE_PROBE_DEGRADED) return "degraded";
  return "unavailable";
}

std::string reason_of(const CandidateVerdict& verdict, bool chosen, const std::string& last_failure) {
  if (!verdict.eligible) return verdict.reason;
  const std::string reason = chosen ? "first eligible in the configured order"
                                    : "eligible, but another comes first in the configured order";
  return last_failure.empty() ? reason : reason + "; but the last call failed: " + last_failure;
}

std::string backend_json(const Backend& backend, const CandidateVerdict& verdict, bool chosen,
                         const std::string& last_failure) {
  std::string out = "{";
  member(out, "name", backend.config.name);
  member(out, "plugin", backend.hello ? backend.hello->plugin_id : backend.config.plugin);
  member(out, "version", backend.hello ? backend.hello->plugin_version : "");
  member(out, "verdict", verdict_of(backend));
  const uint32_t isolation = backend.probe   ? backend.probe->isolation
                             : backend.hello ? backend.hello->isolation
                                             : UINT32_MAX;
  const uint32_t locality = backend.probe   ? backend.probe->locality
                            : backend.hello ? backend.hello->locality
                                            : 0;
  member(out, "isolation", isolation_name(isolation));
  member(out, "locality", locality_name(locality));
  std::string names = "[";
  for (const auto name : capability_names(backend.probe ? backend.probe->capabilities : 0)) {
    if (names.size() > 1) names += ',';
    append_json_string(names, name);
  }
  raw_member(out, "capabilities", names + "]");
  raw_member(out, "eligible", truth(verdict.eligible));
  raw_member(out, "chosen", truth(chosen));
  member(out, "reason", reason_of(verdict, chosen, last_failure));
  member(out, "detail", backend.probe ? backend.probe->detail : backend.reason);
  raw_member(out, "generation", std::to_string(backend.generation));
  raw_member(out, "restarts", std::to_string(backend.restarts));
  return out + "}";
}

std::string check_json(std::string_view name, bool ok, bool required, std::string_view state) {
  std::string out = "{";
  member(out, "name", name);
  raw_member(out, "ok", truth(ok));
  raw_member(out, "required", truth(required));
  member(out, "state", state);
  return out + "}";
}

// Anybody may ask: names and states, no reasons. GET /backends has those.
std::string readiness_json(const App& app) {
  const Decision decision = app.backends.decide({});
  const bool writable = !app.state->last_error();
  std::string list =
      "[" + check_json("accepting", !app.draining, true, app.draining ? "draining" : "serving");
  list += "," + check_json("database", writable, false, writable ? "writable" : "not writable");
  list += "," + check_json("backend", decision.chosen.has_value(), true,
                           decision.chosen ? "one can be chosen" : "none can be chosen");
  const auto& all = app.backends.all();
  for (size_t i = 0; i < all.size(); ++i)
    list += "," + check_json("backend/" + all[i]->config.name, decision.verdicts[i].eligible, false,
                             verdict_of(*all[i]));
  return list + "]";
}

void check_ready(const App& app, const std::string& checks) {
  const std::string details = checks.empty() ? checks : "{" + checks + "}";
  if (app.draining)
    throw ApiError{.code = Code::kDraining,
                   .message = "the gateway is shutting down",
                   .details_json = details,
                   .retry_after_sec = 5};
  const Decision decision = app.backends.decide({});
  if (decision.chosen) return;
  ApiError refusal = refusal_of(decision);
  if (!details.empty()) refusal.details_json = details;
  throw refusal;
}

}  // namespace

Task<void> handle_backends(App& app, Exchange& exchange) {
  const std::string& tenant = exchange.principal.tenant;
  const Decision decision = app.backends.decide({.tenant = tenant});
  std::string list = "[";
  const auto& all = app.backends.all();
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0) list += ',';
    list += backend_json(*all[i], decision.verdicts[i], decision.chosen == all[i]->config.name,
                         all[i]->breakers.last_failure(tenant));
  }
  const Policy& policy = app.backends.policy();
  std::string rules = "{";
  raw_member(rules, "require_remote", truth(policy.require_remote));
  member(rules, "min_isolation", isolation_name(policy.min_isolation));
  raw_member(rules, "allow_unisolated", truth(policy.allow_unisolated));
  std::string out = "{";
  raw_member(out, "backends", list + "]");
  raw_member(out, "policy", rules + "}");
  co_await exchange.send(200, "application/json", out + "}\n");
}

Task<void> handle_sandbox_list(App& app, Exchange& exchange) {
  std::string list = "[";
  for (const Sandbox* sandbox : app.sandboxes.of(exchange.principal.tenant)) {
    if (list.size() > 1) list += ',';
    std::string one = "{";
    member(one, "agent_id", sandbox->row.agent_id);
    member(one, "sandbox_id", sandbox->row.sandbox_id);
    member(one, "backend", sandbox->row.backend);
    member(one, "isolation", isolation_name(sandbox->row.isolation));
    member(one, "state", state_name(sandbox->row.state));
    raw_member(one, "created_ms", std::to_string(sandbox->row.created_ms));
    raw_member(one, "last_used_ms", std::to_string(sandbox->row.last_used_ms));
    raw_member(one, "running_execs", std::to_string(sandbox->execs));
    list += one + "}";
  }
  list = "{\"sandboxes\":" + list + "]}\n";
  exchange.memory.add(list.size());
  co_await exchange.send(200, "application/json", list);
}

Task<void> handle_sandbox_delete(App& app, Exchange& exchange) {
  const std::string agent = agent_of(app, exchange, std::nullopt);
  const auto purge = query_parameter(exchange.query, "purge").value_or("false");
  if (purge != "true" && purge != "false")
    throw ApiError{.code = Code::kInvalidRequest, .message = "`purge` must be true or false"};
  co_await app.sandboxes.end(exchange.principal.tenant, agent, purge == "true", exchange.request_id);
  co_await exchange.send(200, "application/json", "{}\n");
}

Task<void> handle_health(App& app, Exchange& exchange) {
  std::string answer = "{\"status\":\"ok\",\"version\":\"" ISOGATE_VERSION "\"";
  if (exchange.route == Route::kReadyz) {
    const std::string checks =
        query_parameter(exchange.query, "verbose") ? "\"checks\":" + readiness_json(app) : std::string();
    check_ready(app, checks);
    if (!checks.empty()) answer += "," + checks;
  }
  answer += "}\n";
  co_await exchange.send(200, "application/json", answer);
}

Task<void> handle_metrics(App& app, Exchange& exchange) {
  const std::string text = app.metrics.text({.connections = app.connections ? app.connections() : 0,
                                             .sandboxes = app.sandboxes.count(),
                                             .execs_running = app.admission.running(),
                                             .execs_waiting = app.admission.waiting(),
                                             .held_bytes = app.memory.held()});
  co_await exchange.send(200, "text/plain; version=0.0.4; charset=utf-8", text);
}

Task<void> handle_openapi(App&, Exchange& exchange) {
  co_await exchange.send(200, "application/json", openapi_json());
}

}  // namespace isogate::front
