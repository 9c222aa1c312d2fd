#include "gateway/front/byte_range.h"
#include "gateway/front/file_request.h"
#include "gateway/front/handlers.h"

namespace isogate::front {
namespace {

using ipc::FileVerb;

constexpr size_t kSpliceAtOnce = 1 << 20;

// What the raw calls take from the query string: scope, user, mode, append, durable, exclusive, parents,
// recursive.
FileTarget target_of(const Exchange& exchange) {
  FileTarget target{.path = exchange.path_param, .request_id = exchange.request_id};
  check_path("path", target.path);
  const auto flag = [&exchange](std::string_view name, bool otherwise) {
    const auto value = query_parameter(exchange.query, name);
    if (!value) return otherwise;
    if (*value != "true" && *value != "false")
      throw invalid_file("`" + std::string(name) + "` must be true or false");
    return *value == "true";
  };
  target.scope = parse_scope(query_parameter(exchange.query, "scope").value_or("workspace"));
  if (target.scope == ISOGATE_SCOPE_SANDBOX && !target.path.starts_with('/')) target.path.insert(0, 1, '/');
  target.user = query_parameter(exchange.query, "user").value_or("");
  if (const auto mode = query_parameter(exchange.query, "mode")) {
    target.mode = parse_mode(*mode);
    target.flags |= ISOGATE_FILE_MODE_GIVEN;
  }
  if (flag("append", false)) target.flags |= ISOGATE_FILE_APPEND;
  if (flag("durable", false)) target.flags |= ISOGATE_FILE_DURABLE;
  if (flag("exclusive", false)) target.flags |= ISOGATE_FILE_EXCLUSIVE;
  if (flag("recursive", false)) target.flags |= ISOGATE_FILE_RECURSIVE;
  if (flag("parents", true)) target.flags |= ISOGATE_FILE_PARENTS;
  return target;
}

Wanted wanted_by(const App& app, const Exchange& exchange, const FileTarget& target) {
  return {.tenant = exchange.principal.tenant,
          .agent = agent_of(app, exchange, std::nullopt),
          .backend = {},
          .min_isolation = {},
          .capabilities = needed_capabilities(target),
          .request_id = exchange.request_id};
}

Headers download_headers(const ipc::Entry& entry) {
  return {{"Accept-Ranges", "bytes"},
          {"Content-Disposition", "attachment"},
          {"Content-Security-Policy", "sandbox"},
          {"ETag", "\"" + std::to_string(entry.mtime_ns) + "-" + std::to_string(entry.size) + "\""}};
}

Task<void> send_range(Exchange& exchange, Lease& lease, FileTarget target, const ByteRange& range) {
  target.offset = range.offset;
  target.limit = range.length;
  Transfer transfer(lease, FileVerb::kRead, std::move(target));
  exchange.on_gone([&transfer] { transfer.cancel(); });
  uint64_t left = range.length;
  try {
    while (left > 0) {
      const size_t n =
          co_await exchange.write_from_pipe(transfer.pipe, std::min<uint64_t>(left, kSpliceAtOnce));
      if (n == 0) break;
      left -= n;
    }
  } catch (...) {
    exchange.on_gone({});
    throw;
  }
  exchange.on_gone({});
}

}  // namespace

Task<void> handle_file_get(App& app, Exchange& exchange) {
  const FileTarget target = target_of(exchange);
  const Wanted wanted = wanted_by(app, exchange, target);
  Lease lease = co_await app.sandboxes.acquire(wanted);
  // An empty read says what a read would say: a symlink that leaves the workspace, a FIFO, a directory.
  FileTarget peek = target;
  peek.limit = 0;
  Transfer transfer(lease, FileVerb::kRead, std::move(peek));
  Killer killer;
  exchange.on_gone([&killer] { killer.kill(); });
  const TransferKill kill(&killer, transfer);
  const ipc::Reply reply = co_await transfer.reply();
  throw_unless_ok(app, lease, reply, killer.killed());
  const auto& entry = std::get<ipc::Entry>(reply.value);
  Headers headers = download_headers(entry);
  const auto range = parse_range(exchange.header("Range"), entry.size);
  if (!range) {
    throw ApiError{
        .code = Code::kRangeNotSatisfiable,
        .message = "the file has " + std::to_string(entry.size) + " bytes; the Range lies outside"};
  }
  if (range->partial) {
    headers.emplace_back("Content-Range", "bytes " + std::to_string(range->offset) + "-" +
                                              std::to_string(range->offset + range->length - 1) + "/" +
                                              std::to_string(entry.size));
  }
  co_await exchange.begin(range->partial ? 206 : 200, "application/octet-stream", range->length, headers);
  if (exchange.route == Route::kFileGet && range->length > 0)
    co_await send_range(exchange, lease, target, *range);
  co_await exchange.finish();
}

Task<void> handle_file_put(App& app, Exchange& exchange) {
  FileTarget target = target_of(exchange);
  const Wanted wanted = wanted_by(app, exchange, target);
  Lease lease = co_await app.sandboxes.acquire(wanted);
  Transfer transfer(lease, FileVerb::kWrite, std::move(target));
  try {
    while (co_await exchange.read_body_to_pipe(transfer.pipe) > 0) {
    }
    transfer.complete();
  } catch (const PipeClosed&) {  // the backend refused early; its reply says why
    transfer.cancel();
  }
  const ipc::Reply reply = co_await transfer.reply();
  throw_unless_ok(app, lease, reply);
  co_await exchange.send(
      200, "application/json",
      "{\"bytes_written\":" + std::to_string(std::get<ipc::Written>(reply.value).bytes) + "}\n");
}

Task<void> handle_file_delete(App& app, Exchange& exchange) {
  FileTarget target = target_of(exchange);
  const Wanted wanted = wanted_by(app, exchange, target);
  Lease lease = co_await app.sandboxes.acquire(wanted);
  const ipc::Reply reply = co_await plain_file_call(lease, FileVerb::kRemove, std::move(target));
  throw_unless_ok(app, lease, reply);
  co_await exchange.send(200, "application/json", "{}\n");
}

}  // namespace isogate::front
