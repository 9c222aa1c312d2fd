#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "gateway/config/images.h"
#include "gateway/front/api/access.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/api/sandbox_json.h"
#include "gateway/front/app.h"
#include "gateway/front/base/steps.h"
#include "gateway/front/http/json_answer.h"
#include "isogate/disk.h"

namespace isogate::front {
namespace {

using nlohmann::ordered_json;

// null: its backend does not say.
ordered_json disk_json(const std::optional<isogate_disk_use>& use) {
  if (!use) return nullptr;
  return {{"used_bytes", use->used_bytes},
          {"limit_bytes", use->limit_bytes == 0 ? ordered_json(nullptr) : ordered_json(use->limit_bytes)},
          {"used_files", use->used_files},
          {"limit_files", use->limit_files == 0 ? ordered_json(nullptr) : ordered_json(use->limit_files)},
          {"enforcement", (use->flags & ISOGATE_DISK_ENFORCED) != 0 ? "enforced" : "advisory"},
          {"exact", (use->flags & ISOGATE_DISK_EXACT) != 0}};
}

}  // namespace

ordered_json sandbox_json(const Sandbox& sandbox) {
  const SandboxRow& row = sandbox.row;
  return {{"agent_id", row.agent_id},
          {"sandbox_id", row.sandbox_id},
          {"backend", row.backend},
          {"isolation", isolation_name(row.isolation)},
          {"image", row.image.empty() ? ordered_json(nullptr) : ordered_json(row.image)},
          {"state", state_name(row.state)},
          {"created_ms", row.created_ms},
          {"last_used_ms", row.last_used_ms},
          {"running_execs", sandbox.execs},
          {"disk", disk_json(sandbox.disk)}};
}

namespace {

Wanted wanted_sandbox(const App& app, const Exchange& exchange, const nlohmann::json& body) {
  Wanted wanted{.tenant = exchange.principal.tenant,
                .agent = agent_of(exchange, app.config.multi_agent, text_field(body, "agent_id")),
                .backend = text_field(body, "backend"),
                .min_isolation = isolation_field(body, "min_isolation"),
                .request_id = exchange.request_id,
                .image = text_field(body, "image")};
  if (wanted.image && !is_image_name(*wanted.image))
    throw invalid_request("`image` must be the name of an image, such as python:3.12 or team/tools@sha256:…");
  return wanted;
}

Task<void> handle_sandbox_create(App& app, Exchange& exchange) {
  const auto body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes);
  const Lease lease = co_await app.sandboxes.acquire(wanted_sandbox(app, exchange, body));
  co_await send_json(exchange, sandbox_json(*lease.sandbox));
}

Task<void> handle_sandbox_list(App& app, Exchange& exchange) {
  co_await app.sandboxes.disks.look(exchange.principal.tenant);
  const std::vector<SandboxPtr> all = app.sandboxes.records.of(exchange.principal.tenant);
  exchange.memory.add(all.size() * sizeof(SandboxPtr));
  JsonAnswer out(exchange);
  out.text = "{\"sandboxes\":[";
  bool first = true;
  Steps steps(100);
  for (const SandboxPtr& sandbox : all) {
    if (!sandbox->known) continue;  // it was ended meanwhile
    if (!std::exchange(first, false)) out.text += ',';
    out.text += json_text(sandbox_json(*sandbox));
    co_await out.write_if_much();
    if (steps.over()) co_await let_others();
  }
  out.text += "]}\n";
  co_await out.end();
}

Task<void> handle_sandbox_delete(App& app, Exchange& exchange) {
  const std::string agent = agent_of(exchange, app.config.multi_agent);
  const bool purge = query_flag(exchange.query, "purge");
  co_await app.sandboxes.end(exchange.principal.tenant, agent, purge, exchange.request_id);
  co_await send_json(exchange);
}

constexpr std::string_view kSandboxParameters[] = {"purge"};
constexpr std::string_view kSandboxFields[] = {"agent_id", "backend", "image", "min_isolation"};

constexpr Route kSandboxRoutes[] = {
    {"GET", "/sandboxes", "listSandboxes", handle_sandbox_list},
    {"POST", "/sandboxes", "createSandbox", handle_sandbox_create, kSandboxFields},
    {"DELETE", "/sandboxes/{agent_id}", "deleteSandbox", handle_sandbox_delete, {}, kSandboxParameters},
};

}  // namespace

std::span<const Route> sandbox_routes() { return kSandboxRoutes; }

}  // namespace isogate::front
