// What each call of the HTTP door does. Each takes the exchange to its answer or throws ApiError.
#pragma once

#include "gateway/front/app.h"
#include "gateway/front/exchange.h"

namespace isogate::front {

// Dispatches on exchange.route.
Task<void> handle(App& app, Exchange& exchange);

Task<void> handle_exec(App& app, Exchange& exchange);
Task<void> handle_exec_stream(App& app, Exchange& exchange);

Task<void> handle_file_json(App& app, Exchange& exchange);  // read, write, list, stat, mkdir, move, remove
Task<void> handle_file_get(App& app, Exchange& exchange);   // and HEAD
Task<void> handle_file_put(App& app, Exchange& exchange);
Task<void> handle_file_delete(App& app, Exchange& exchange);

Task<void> handle_sandbox_list(App& app, Exchange& exchange);
Task<void> handle_sandbox_delete(App& app, Exchange& exchange);
Task<void> handle_backends(App& app, Exchange& exchange);
Task<void> handle_health(App& app, Exchange& exchange);  // healthz, livez, readyz
Task<void> handle_metrics(App& app, Exchange& exchange);
Task<void> handle_openapi(App& app, Exchange& exchange);

// The agent of a request: body field, path, X-Agent-Id and env.AGENT_ID agree, or invalid_request.
std::string agent_of(const App& app, const Exchange& exchange, const std::optional<std::string>& in_body,
                     const std::optional<std::string>& in_env = std::nullopt);

// Throws unsupported_media_type unless the body is declared as application/json.
void require_json(const Exchange& exchange);

// One parameter of a query string, decoded; nullopt when absent.
std::optional<std::string> query_parameter(std::string_view query, std::string_view name);

}  // namespace isogate::front
