#include <nlohmann/json.hpp>

#include "gateway/front/api/access.h"
#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/http/json_answer.h"

namespace isogate::front {
namespace {

using nlohmann::ordered_json;

Task<void> handle_sandbox_list(App& app, Exchange& exchange) {
  ordered_json list = ordered_json::array();
  for (const Sandbox* sandbox : app.sandboxes.of(exchange.principal.tenant)) {
    const SandboxRow& row = sandbox->row;
    list.push_back({{"agent_id", row.agent_id},
                    {"sandbox_id", row.sandbox_id},
                    {"backend", row.backend},
                    {"isolation", isolation_name(row.isolation)},
                    {"state", state_name(row.state)},
                    {"created_ms", row.created_ms},
                    {"last_used_ms", row.last_used_ms},
                    {"running_execs", sandbox->execs}});
  }
  ordered_json body{{"sandboxes", std::move(list)}};
  co_await send_json(exchange, std::move(body), Claimed::kAll);
}

Task<void> handle_sandbox_delete(App& app, Exchange& exchange) {
  const std::string agent = agent_of(exchange, app.config.multi_agent);
  const bool purge = query_flag(exchange.query, "purge");
  co_await app.sandboxes.end(exchange.principal.tenant, agent, purge, exchange.request_id);
  co_await send_json(exchange);
}

constexpr std::string_view kSandboxParameters[] = {"purge"};

constexpr Route kSandboxRoutes[] = {
    {"GET", "/sandboxes", "listSandboxes", handle_sandbox_list},
    {"DELETE", "/sandboxes/{agent_id}", "deleteSandbox", handle_sandbox_delete, {}, kSandboxParameters},
};

}  // namespace

std::span<const Route> sandbox_routes() { return kSandboxRoutes; }

}  // namespace isogate::front
