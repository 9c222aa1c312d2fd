// GET /workspace/watch: what changes in a directory, as Server-Sent Events (WHATWG HTML, section 9.2).
#include <chrono>
#include <optional>
#include <utility>

#include "gateway/front/api/files.h"
#include "gateway/front/api/router.h"
#include "lib/text.h"

namespace isogate::front {
namespace {

constexpr size_t kMostAtOnce = 32 << 10;           // of events, in one write
constexpr std::chrono::seconds kCommentAfter{15};  // of silence

std::string_view name_of_change(uint32_t type) {
  switch (type) {
    case ISOGATE_CHANGE_CREATED:
      return "created";
    case ISOGATE_CHANGE_WRITTEN:
      return "written";
    case ISOGATE_CHANGE_REMOVED:
      return "removed";
    case ISOGATE_CHANGE_RENAMED:
      return "renamed";
    case ISOGATE_CHANGE_ATTRIBUTES:
      return "attributes";
    default:
      return {};
  }
}

struct EndText {
  std::string_view reason, message;
};

EndText text_of_end(WatchEnd why) {
  switch (why) {
    case WatchEnd::kRemoved:
      return {"removed", "the directory was removed, or moved away"};
    case WatchEnd::kSandboxEnded:
      return {"sandbox_ended", "the sandbox was ended, or stopped because nothing was done in it"};
    case WatchEnd::kReloaded:
      return {"reloaded", "the gateway was reloaded: watch again"};
    case WatchEnd::kDraining:
      return {"draining", "the gateway is ending"};
    case WatchEnd::kFailed:
      break;
  }
  return {"failed", "the backend could not go on"};
}

// Where the names in events begin: a workspace path without `/workspace`, or an absolute one; empty, or with
// a slash at its end.
std::string prefix_of(const FileTarget& target) {
  constexpr std::string_view kRoot = "/workspace";
  const bool workspace = target.scope == ISOGATE_SCOPE_WORKSPACE;
  std::string_view rest = target.path;
  if (workspace && (rest == kRoot || rest.starts_with("/workspace/"))) rest.remove_prefix(kRoot.size());
  std::string prefix = workspace ? "" : "/";
  while (!rest.empty()) {
    const std::string_view part = next_part(rest, '/');
    if (!part.empty() && part != ".") prefix.append(part).append("/");
  }
  return prefix;
}

void append_path(std::string& out, std::string_view key, const std::string& path) {
  append_name(out, key, path, goes_as_text(path));
}

void append_event(std::string& out, const std::string& prefix, const FileChange& change) {
  if (change.type == ISOGATE_CHANGE_OVERFLOW) {
    out += "event: overflow\ndata: {}\n\n";
    return;
  }
  const std::string_view name = name_of_change(change.type);
  if (name.empty()) return;
  out += "event: change\ndata: {";
  append_path(out, "path", prefix + std::string(change.path));
  out.append(",\"type\":\"").append(name).append("\"");
  if (change.type == ISOGATE_CHANGE_RENAMED) {
    out += ',';
    append_path(out, "from", prefix + std::string(change.from));
  }
  out += change.directory ? ",\"directory\":true}\n\n" : ",\"directory\":false}\n\n";
}

std::string end_event(const Watch& watch) {
  const EndText text = text_of_end(*watch.over());
  const bool failed = watch.over() == WatchEnd::kFailed && !watch.message().empty();
  std::string out = "event: end\ndata: {\"reason\":";
  append_json_string(out, text.reason);
  out += ",\"message\":";
  const std::string why(failed ? watch.message() : text.message);
  append_json_string(out, is_utf8(why) ? why : printable(why, 1000));
  return out + "}\n\n";
}

FileRequest watch_request(const Config& config, const Exchange& exchange) {
  FileTarget target = target_from_query(query_parameter(exchange.query, "path").value_or(""), exchange.query);
  if (query_flag(exchange.query, "recursive")) target.flags |= ISOGATE_FILE_RECURSIVE;
  return request_for(config, exchange, std::move(target), query_parameter(exchange.query, "agent_id"));
}

// What the watch was refused with. Throws ApiError of its own accord where the backend has replied.
ApiError refusal_of(App& app, Lease& lease, const Watch& watch) {
  if (const ipc::Reply* reply = watch.reply()) throw_unless_ok(app, lease, *reply);
  const WatchEnd why = watch.over().value_or(WatchEnd::kFailed);
  const std::string text(text_of_end(why).message);
  if (why == WatchEnd::kRemoved) return {.code = Code::kFileNotFound, .message = text};
  if (why == WatchEnd::kDraining) return {.code = Code::kDraining, .message = text};
  return {.code = Code::kBackendUnavailable,
          .message = watch.message().empty() ? text : watch.message(),
          .retry_after_sec = 1};
}

Task<void> handle_watch(App& app, Exchange& exchange) {
  FileRequest request = watch_request(app.config, exchange);
  const std::string prefix = prefix_of(request.target);
  exchange.memory.hold(kWatchBytes);
  const auto watch = co_await begin_watch(app, exchange, std::move(request));
  Killer& client = exchange.watch_client();
  const OnKill on_kill(client, [&watch] { watch->end(WatchEnd::kFailed); });
  co_await exchange.begin_stream("text/event-stream");
  std::string events = "event: ready\ndata: {}\n\n";
  const Watch::Take take = [&](const FileChange& change) {
    append_event(events, prefix, change);
    return events.size() < kMostAtOnce;
  };
  while (!watch->over()) {
    if (events.empty()) events = ": nothing has changed\n\n";
    co_await exchange.write(events);
    events.clear();
    co_await watch->read(kCommentAfter, take);
    if (client.killed()) throw ClientGone{};
  }
  if (watch->over() == WatchEnd::kFailed)
    exchange.note({.code = Code::kBackendUnavailable, .message = watch->message(), .of_file = true});
  events += end_event(*watch);
  co_await exchange.write(events);
  co_await exchange.finish();
}

constexpr std::string_view kWatchParameters[] = {"agent_id", "path", "recursive", "scope", "user"};

constexpr Route kWatchRoutes[] = {
    {"GET", "/workspace/watch", "watchDirectory", handle_watch, {}, kWatchParameters},
};

}  // namespace

Task<std::unique_ptr<Watch>> begin_watch(App& app, Exchange& exchange, FileRequest request) {
  request.wanted.capabilities |= ISOGATE_CAP_WATCH;
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  auto watch = std::make_unique<Watch>(lease, std::move(request.target));
  Killer& client = exchange.watch_client();
  const OnKill on_kill(client, [&watch] { watch->end(WatchEnd::kFailed); });
  const bool begun = co_await watch->begin();
  if (app.draining) watch->end(WatchEnd::kDraining);
  if (client.killed()) throw ClientGone{};
  if (!begun) throw refusal_of(app, lease, *watch);
  co_return watch;
}

std::span<const Route> watch_routes() { return kWatchRoutes; }

}  // namespace isogate::front
