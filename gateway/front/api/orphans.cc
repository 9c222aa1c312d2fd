// What lost sandboxes have left on an Engine: listed and removed for the operator, never by itself.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "gateway/front/api/router.h"
#include "gateway/front/app.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/sandboxes/enumeration.h"
#include "isogate/orphans.h"
#include "lib/log.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

using nlohmann::ordered_json;

constexpr size_t kMostOrphans = 1 << 16;
constexpr size_t kMostOfHandle = sizeof(isogate_sandbox_info::handle);  // a longer one is cut

struct Orphan {
  std::string backend;
  ipc::Found found;
  [[nodiscard]] bool runs() const { return (found.flags & ISOGATE_SANDBOX_RUNS) != 0; }
};

struct Orphans {
  std::vector<Orphan> all;
  ordered_json unknown = ordered_json::array();  // backends that could not be asked, with why
};

void require_operator(const Exchange& exchange) {
  if (exchange.principal.is_operator) return;
  throw ApiError{.code = Code::kPermissionDenied,
                 .message =
                     "only who runs the gateway may see what lost sandboxes have left: ask over its Unix "
                     "socket, as its user or root, without a key"};
}

// One backend's, or all.
Task<Orphans> find_orphans(App& app, std::optional<std::string> only, std::string request_id) {
  Orphans orphans;
  const auto backends = app.backends.all();
  for (const auto& backend : backends) {
    const std::string& name = backend->config.name;
    if (only && *only != name) continue;
    const auto channel = backend->channel;
    if (!channel) {
      orphans.unknown.push_back({{"backend", name}, {"reason", backend->reason}});
      continue;
    }
    std::function<ipc::Call(Fd)> ask = [&request_id](Fd out) {
      ipc::OrphansCall call;
      call.call.request_id = request_id;
      call.out = std::move(out);
      return ipc::Call(std::move(call));
    };
    std::function<void(ipc::Found)> take = [&orphans, &name](ipc::Found found) {
      found.handle = found.handle.substr(0, kMostOfHandle);
      orphans.all.push_back({name, std::move(found)});
    };
    const size_t before = orphans.all.size();
    const Result<void> listed = co_await enumerate(channel, std::move(ask), kMostOrphans, std::move(take));
    if (listed.ok()) continue;
    orphans.all.resize(before);
    orphans.unknown.push_back({{"backend", name}, {"reason", listed.error().message}});
  }
  co_return orphans;
}

ordered_json json_of(const App& app, const Orphan& orphan) {
  ordered_json one = {{"backend", orphan.backend},
                      {"sandbox_id", orphan.found.sandbox_id},
                      {"object", orphan.found.handle},
                      {"running", orphan.runs()}};
  if (const auto sandbox = app.sandboxes.records.known(orphan.found.sandbox_id)) {
    one["tenant"] = sandbox->row.tenant;
    one["agent_id"] = sandbox->row.agent_id;
  }
  return one;
}

// False: there was nothing of it any more, or its sandbox is back.
Task<bool> remove_from(App& app, std::string name, std::string sandbox_id, uint32_t flags,
                       std::string request_id) {
  const auto backend = app.backends.find(name);
  if (!backend)
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message = "backend `" + name + "` was just removed from the configuration"};
  if (!backend->channel)
    throw ApiError{.code = Code::kBackendUnavailable,
                   .message = "backend `" + name + "`: " + backend->reason};
  ipc::OrphansCall call;
  call.call.request_id = std::move(request_id);
  call.sandbox_id = std::move(sandbox_id);
  call.flags = flags;
  const auto channel = backend->channel;
  const ipc::Reply reply = co_await channel->call(std::move(call));
  // The engine refuses the gateway, not this caller.
  if (reply.status == ISOGATE_PERMISSION_DENIED)
    throw ApiError{.code = Code::kBackendUnavailable, .message = reply.message, .permanent = true};
  if (reply.status != ISOGATE_OK && reply.status != ISOGATE_NOT_FOUND) throw from_backend(reply.error());
  co_return reply.status == ISOGATE_OK;
}

void note_removed(const std::string& id, size_t removed) {
  log::info("orphans_removed", {{"sandbox_id", id}, {"objects", removed}});
}

Task<void> handle_orphan_list(App& app, Exchange& exchange) {
  require_operator(exchange);
  const Orphans orphans = co_await find_orphans(app, std::nullopt, exchange.request_id);
  ordered_json list = ordered_json::array();
  for (const Orphan& each : orphans.all) list.push_back(json_of(app, each));
  ordered_json body = {{"orphans", std::move(list)}, {"unknown", orphans.unknown}};
  co_await send_json(exchange, std::move(body), Claimed::kAll);
}

Task<void> handle_orphan_delete(App& app, Exchange& exchange) {
  require_operator(exchange);
  const std::string id = exchange.agent_param;
  const auto only = query_parameter(exchange.query, "backend");
  const bool running = query_flag(exchange.query, "running");
  if (only && !app.backends.find(*only))
    throw invalid_request("there is no backend `" + printable(*only, 80) + "`");
  Orphans orphans = co_await find_orphans(app, only, exchange.request_id);
  std::erase_if(orphans.all, [&](const Orphan& each) { return each.found.sandbox_id != id; });
  if (orphans.all.empty()) {
    if (!orphans.unknown.empty())
      throw ApiError{.code = Code::kBackendUnavailable,
                     .message = "backend `" + orphans.unknown[0]["backend"].get<std::string>() +
                                "` cannot be asked: " + orphans.unknown[0]["reason"].get<std::string>()};
    throw ApiError{.code = Code::kSandboxNotFound,
                   .message = "no lost sandbox `" + printable(id, 80) + "` has left anything"};
  }
  if (!running &&
      std::any_of(orphans.all.begin(), orphans.all.end(), [](const Orphan& o) { return o.runs(); }))
    throw invalid_request("what `" + printable(id, 80) +
                          "` has left still runs: running=true (--running) removes it, too");
  ordered_json removed = ordered_json::array();
  std::string last;
  bool is_gone = false;
  try {
    for (const Orphan& each : orphans.all) {
      if (std::exchange(last, each.backend) != each.backend)  // all of a backend's at once
        is_gone = co_await remove_from(app, each.backend, id, running ? ISOGATE_ORPHANS_RUNNING : 0,
                                       exchange.request_id);
      if (is_gone) removed.push_back(json_of(app, each));
    }
  } catch (ApiError& error) {
    if (!removed.empty()) note_removed(id, removed.size());
    error.message += ". A part may be removed: list the orphans again, and repeat the call";
    error.details_json = json_text({{"removed", removed}, {"backend", last}});
    throw;
  }
  if (removed.empty())
    throw ApiError{.code = Code::kSandboxNotFound,
                   .message = "nothing was removed: the orphans of `" + printable(id, 80) +
                              "` no longer exist, or are in use"};
  note_removed(id, removed.size());
  ordered_json body = {{"removed", std::move(removed)}, {"unknown", orphans.unknown}};
  co_await send_json(exchange, std::move(body));
}

constexpr std::string_view kOrphanParameters[] = {"backend", "running"};

constexpr Route kOrphanRoutes[] = {
    {"GET", "/orphans", "listOrphans", handle_orphan_list},
    {"DELETE", "/orphans/{sandbox_id}", "deleteOrphan", handle_orphan_delete, {}, kOrphanParameters},
};

}  // namespace

std::span<const Route> orphan_routes() { return kOrphanRoutes; }

}  // namespace isogate::front
