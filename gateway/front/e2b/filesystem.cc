// filesystem.Filesystem of E2B's envd.
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>

#include "gateway/front/api/json_in.h"
#include "gateway/front/e2b/entries.h"
#include "gateway/front/e2b/listener.h"
#include "gateway/front/e2b/routes.h"
#include "gateway/front/e2b/rpc.h"
#include "gateway/front/e2b/user.h"
#include "gateway/front/http/json_answer.h"
#include "lib/text.h"

namespace isogate::front::e2b {
namespace {

using ipc::FileVerb;
using nlohmann::json;
using nlohmann::ordered_json;

Target target_in(App& app, const Exchange& exchange, const json& body, std::string_view field) {
  const auto path = text_field(body, field);
  if (!path) throw invalid_request("`" + std::string(field) + "` is missing");
  return target_of(app, exchange, *path, user_of(app.config, exchange));
}

Task<void> send_entry(Exchange& exchange, const ipc::Entry& entry, const std::string& shown) {
  ordered_json answer = {{"entry", entry_json(entry, shown)}};
  co_await send_json(exchange, std::move(answer));
}

// To E2B's SDKs a path that is there and is no directory is a wrong argument: neither "exists" nor "not
// found".
Task<void> refuse_file(App& app, Exchange& exchange, const Target& target) {
  ipc::Entry entry;
  try {
    entry = co_await stat_of(app, exchange, target);
  } catch (const ApiError&) {
    co_return;
  }
  if (entry.type != ISOGATE_ENTRY_DIRECTORY && entry.type != ISOGATE_ENTRY_SYMLINK)
    throw invalid_request(printable(target.place.shown, 200) + ": it is not a directory");
}

// What `work` does with a directory. Both outlive the call.
template <typename Work>
std::invoke_result_t<const Work&> with_directory(App& app, Exchange& exchange, const Target& target,
                                                 const Work& work) {
  std::optional<ApiError> refusal;
  try {
    co_return co_await work();
  } catch (const ApiError& error) {
    refusal = error;
  }
  if (refusal->code == Code::kFileNotFound || refusal->code == Code::kAlreadyExists)
    co_await refuse_file(app, exchange, target);
  throw ApiError(*refusal);
}

Task<void> handle_stat(App& app, Exchange& exchange) {
  const Target target = target_in(app, exchange, co_await read_message(app, exchange), "path");
  co_await send_entry(exchange, co_await stat_of(app, exchange, target), target.place.shown);
}

Task<void> handle_mkdir(App& app, Exchange& exchange) {
  Target target = target_in(app, exchange, co_await read_message(app, exchange), "path");
  target.request.target.flags |= ISOGATE_FILE_PARENTS | ISOGATE_FILE_EXCLUSIVE;
  target.request.target.mode = 0755;
  const auto make = [&] { return file_call_on(app, exchange, FileVerb::kMkdir, target); };
  try {
    co_await with_directory(app, exchange, target, make);
  } catch (ApiError& error) {
    if (error.code == Code::kFileNotFound) error.code = Code::kInvalidRequest;  // a file is on the way
    throw;
  }
  co_await send_entry(exchange, co_await stat_of(app, exchange, target), target.place.shown);
}

Task<void> handle_move(App& app, Exchange& exchange) {
  const json body = co_await read_message(app, exchange);
  Target from = target_in(app, exchange, body, "source");
  const Target to = target_in(app, exchange, body, "destination");
  if (from.place.scope != to.place.scope)
    throw ApiError{.code = Code::kUnsupported,
                   .message = "a file is not moved into the home directory or out of it: run mv"};
  from.request.target.path_to = to.place.path;
  from.request.target.flags |= ISOGATE_FILE_PARENTS | ISOGATE_FILE_REPLACE;  // envd is root: no mode stops it
  co_await file_call_on(app, exchange, FileVerb::kMove, std::move(from));
  co_await send_entry(exchange, co_await stat_of(app, exchange, to), to.place.shown);
}

Task<void> handle_remove(App& app, Exchange& exchange) {
  Target target = target_in(app, exchange, co_await read_message(app, exchange), "path");
  target.request.target.flags |= ISOGATE_FILE_RECURSIVE;
  try {
    co_await file_call_on(app, exchange, FileVerb::kRemove, std::move(target));
  } catch (const ApiError& error) {
    if (error.code != Code::kFileNotFound) throw;
  }
  co_await send_json(exchange);
}

// Names below the directory, at most so many levels down; those that are not UTF-8 cannot be told.
Task<void> send_entries(Exchange& exchange, const Listing& listing, const std::string& shown,
                        uint64_t depth) {
  JsonAnswer out(exchange);
  out.text = "{\"entries\":[";
  bool first = true;
  for (const ipc::Entry& entry : listing.entries) {
    const auto slashes = static_cast<uint64_t>(std::ranges::count(entry.name, '/'));
    if (slashes + 1 > depth || !is_utf8(entry.name)) continue;
    if (!std::exchange(first, false)) out.text += ',';
    out.text += json_text(entry_json(entry, below(shown, entry.name)));
    co_await out.write_if_much();
  }
  out.text += "]}";
  co_await out.end();
}

Task<void> handle_list_dir(App& app, Exchange& exchange) {
  const json body = co_await read_message(app, exchange);
  const uint64_t depth = std::max<uint64_t>(count_field(body, "depth", 0, UINT32_MAX).value_or(1), 1);
  const Target target = target_in(app, exchange, body, "path");
  const auto list = [&] {
    return list_directory(app, exchange, target.request, depth > 1, app.config.limits.list_max_entries);
  };
  const Listing listing = co_await with_directory(app, exchange, target, list);
  if (listing.truncated)
    throw ApiError{.code = Code::kFileTooLarge,
                   .message = target.place.shown + ": there are too many entries to list"};
  co_await send_entries(exchange, listing, target.place.shown, depth);
}

ordered_json event_json(const FileEvent& event) { return {{"name", event.name}, {"type", event.type}}; }

Target watched(App& app, const Exchange& exchange, const json& body) {
  if (app.draining) throw draining();
  Target target = target_in(app, exchange, body, "path");
  if (bool_field(body, "recursive").value_or(false)) target.request.target.flags |= ISOGATE_FILE_RECURSIVE;
  return target;
}

// Or it has ended. Else it was only stopped, or its host was lost: the next call opens it again.
bool is_ending(const App& app, const Exchange& exchange) {
  const auto sandbox = app.sandboxes.records.known(exchange.principal.tenant, exchange.agent_param);
  if (!sandbox || !sandbox->closing) return !sandbox || sandbox->changing;
  return *sandbox->closing == ISOGATE_CLOSE_PURGE;
}

Task<void> follow_watch(const App& app, Exchange& exchange, Watch& watch) {
  const auto interval = keepalive_interval(exchange);
  const auto until = rpc_deadline(exchange);
  Killer& client = exchange.watch_client();
  const OnKill on_kill(client, [&watch] { watch.end(WatchEnd::kFailed); });
  MessageStream stream(exchange);
  co_await stream.begin();
  co_await stream.write(R"({"start":{}})");
  std::deque<FileEvent> events;
  bool lost = false;
  const Watch::Take take = [&](const FileChange& change) {
    lost = change.type == ISOGATE_CHANGE_OVERFLOW;
    append_events(change, events);
    return !lost && events.size() < 256;
  };
  while (!watch.over()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= left.zero())
      co_return co_await stream.fail(
          {.code = Code::kRequestTimeout, .message = "the time of the watch is over"});
    co_await watch.read(std::min<std::chrono::nanoseconds>(interval, left), take);
    if (client.killed()) throw ClientGone{};
    if (events.empty() && !lost && !watch.over()) co_await stream.write(R"({"keepalive":{}})");
    for (const FileEvent& event : events) {
      const ordered_json message = {{"filesystem", event_json(event)}};
      co_await stream.write(json_text(message));
    }
    if (lost) co_return co_await stream.fail(events_lost());
    events.clear();
  }
  if (watch.over() == WatchEnd::kRemoved) co_return co_await stream.end();
  if (watch.over() == WatchEnd::kSandboxEnded && is_ending(app, exchange))
    co_return co_await stream.fail(sandbox_is_gone());
  co_await stream.fail(watch_ended());
}

Task<void> handle_watch(App& app, Exchange& exchange) {
  const json body = co_await read_first_message(app, exchange);
  exchange.memory.add(kWatchBytes);
  const Target target = watched(app, exchange, body);
  const auto begin = [&] { return begin_watch(app, exchange, target.request); };
  const auto watch = co_await with_directory(app, exchange, target, begin);
  co_await follow_watch(app, exchange, *watch);
}

Task<void> handle_watcher_create(App& app, Exchange& exchange) {
  const json body = co_await read_message(app, exchange);
  const Target target = watched(app, exchange, body);
  const auto add = [&] { return app.e2b->watchers.add(app, exchange, target.request); };
  const std::string id = co_await with_directory(app, exchange, target, add);
  ordered_json answer = {{"watcherId", id}};
  co_await send_json(exchange, std::move(answer));
}

std::string watcher_in(const json& body) {
  const auto id = text_field(body, "watcherId");
  return id ? *id : text_field(body, "watcher_id").value_or("");
}

Task<void> handle_watcher_events(App& app, Exchange& exchange) {
  const std::string id = watcher_in(co_await read_message(app, exchange));
  ordered_json events = ordered_json::array();
  for (const FileEvent& event : co_await app.e2b->watchers.take(exchange, id))
    events.push_back(event_json(event));
  const ordered_json answer = {{"events", std::move(events)}};
  co_await exchange.send(200, "application/json", json_text(answer));  // exchange.memory holds it already
}

Task<void> handle_watcher_remove(App& app, Exchange& exchange) {
  app.e2b->watchers.remove(exchange, watcher_in(co_await read_message(app, exchange)));
  co_await send_json(exchange);
}

constexpr Route kFilesystemRoutes[] = {
    {"POST", "/filesystem.Filesystem/Stat", "e2bStat", handle_stat},
    {"POST", "/filesystem.Filesystem/MakeDir", "e2bMakeDir", handle_mkdir},
    {"POST", "/filesystem.Filesystem/Move", "e2bMove", handle_move},
    {"POST", "/filesystem.Filesystem/ListDir", "e2bListDir", handle_list_dir},
    {"POST", "/filesystem.Filesystem/Remove", "e2bRemove", handle_remove},
    {"POST", "/filesystem.Filesystem/WatchDir", "e2bWatch", streaming<handle_watch>},
    {"POST", "/filesystem.Filesystem/CreateWatcher", "e2bWatcher", handle_watcher_create},
    {"POST", "/filesystem.Filesystem/GetWatcherEvents", "e2bWatcherEvents", handle_watcher_events},
    {"POST", "/filesystem.Filesystem/RemoveWatcher", "e2bWatcherRemove", handle_watcher_remove},
};

}  // namespace

std::span<const Route> filesystem_routes() { return kFilesystemRoutes; }

}  // namespace isogate::front::e2b
