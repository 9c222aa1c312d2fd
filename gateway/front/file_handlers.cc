#include <algorithm>
#include <array>
#include <boost/asio/write.hpp>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "gateway/front/file_request.h"
#include "gateway/front/handlers.h"
#include "gateway/front/json_answer.h"
#include "gateway/front/json_body.h"
#include "gateway/front/json_in.h"
#include "gateway/front/text.h"

namespace isogate::front {
namespace {

using ipc::FileVerb;
using nlohmann::json;

constexpr size_t kWriteAtOnce = 64 * 1024;

std::string_view type_name(uint32_t type) {
  switch (type) {
    case ISOGATE_ENTRY_REGULAR:
      return "file";
    case ISOGATE_ENTRY_DIRECTORY:
      return "directory";
    case ISOGATE_ENTRY_SYMLINK:
      return "symlink";
    default:
      return "other";
  }
}

// Names that are not UTF-8 come as base64, and say so.
void append_entry(std::string& out, const ipc::Entry& entry) {
  out += '{';
  if (is_utf8(entry.name)) {
    out += "\"name\":";
    append_json_string(out, entry.name);
    out += ',';
  } else {
    out += "\"name\":\"";
    append_base64(out, entry.name);
    out += "\",\"name_encoding\":\"base64\",";
  }
  std::array<char, 8> mode{};
  const auto end = std::to_chars(mode.data(), mode.data() + mode.size(), entry.mode & 07777, 8).ptr;
  out.append("\"type\":\"")
      .append(type_name(entry.type))
      .append("\",\"size\":")
      .append(std::to_string(entry.size));
  out.append(",\"mode\":\"0")
      .append(mode.data(), end)
      .append("\",\"mtime_ms\":")
      .append(std::to_string(entry.mtime_ns / 1000000))
      .append("}");
}

struct FileBody {
  json body;
  FileTarget target;
  Wanted wanted;
};

FileBody parse_file_body(const App& app, const Exchange& exchange, json body) {
  FileBody parsed;
  parsed.body = std::move(body);
  FileTarget& target = parsed.target;
  const auto path = text_field(parsed.body, "path");
  if (!path && exchange.route != Route::kList) throw invalid_file("`path` is missing");
  target.path = path.value_or("");
  check_path("path", target.path);
  target.scope = parse_scope(text_field(parsed.body, "scope").value_or("workspace"));
  target.user = text_field(parsed.body, "user").value_or("");
  target.request_id = exchange.request_id;
  target.idle = idle_limit(app);
  parsed.wanted = {.tenant = exchange.principal.tenant,
                   .agent = agent_of(app, exchange, text_field(parsed.body, "agent_id")),
                   .backend = {},
                   .min_isolation = {},
                   .capabilities = needed_capabilities(target),
                   .request_id = exchange.request_id};
  return parsed;
}

// Keeps the parsed body alone, which has the size of its text.
Task<FileBody> read_file_body(App& app, Exchange& exchange) {
  json body = co_await read_json_body(app, exchange, app.config.limits.max_json_bytes * 3 / 2);
  co_return parse_file_body(app, exchange, std::move(body));
}

void set_flag(FileBody& file, std::string_view field, uint32_t flag, bool otherwise = false) {
  if (bool_field(file.body, field).value_or(otherwise)) file.target.flags |= flag;
}

Task<std::string> gather(Transfer& transfer, uint64_t cap, MemoryShare& memory) {
  std::string bytes;
  std::string chunk(65536, '\0');
  for (;;) {
    boost::system::error_code error;
    const size_t n = co_await transfer.pipe.async_read_some(
        boost::asio::buffer(chunk), boost::asio::redirect_error(boost::asio::use_awaitable, error));
    if (error || n == 0) break;
    if (bytes.size() + n > cap) {
      transfer.cancel();
      throw ApiError{
          .code = Code::kFileTooLarge,
          .message = "the file is over " + std::to_string(cap) +
                     " bytes; read it in parts with offset and limit, or with GET /workspace/files"};
    }
    transfer.moved(n);
    memory.add(n);
    bytes.append(chunk, 0, n);
  }
  co_return bytes;
}

Task<void> read_json(App& app, Exchange& exchange, FileBody& file) {
  const auto encoding = text_field(file.body, "encoding").value_or("auto");
  if (encoding != "auto" && encoding != "utf-8" && encoding != "base64")
    throw invalid_file("`encoding` must be auto, utf-8 or base64");
  const uint64_t cap = app.config.limits.max_json_bytes;
  file.target.offset = count_field(file.body, "offset", 0, INT64_MAX).value_or(0);
  file.target.limit = count_field(file.body, "limit", 0, cap).value_or(cap + 1);
  Lease lease = co_await app.sandboxes.acquire(file.wanted);
  Transfer transfer(lease, FileVerb::kRead, file.target);
  Killer killer;
  exchange.on_gone([&killer] { killer.kill(); });
  const TransferKill kill(&killer, transfer);
  const std::string bytes = co_await gather(transfer, cap, exchange.memory);
  const ipc::Reply reply = co_await transfer.reply();
  throw_unless_ok(app, lease, reply, killer.killed());
  const bool as_text = encoding == "auto" ? goes_as_text(bytes) : encoding == "utf-8";
  if (encoding == "utf-8" && !is_utf8(bytes))
    throw invalid_file("the file is not UTF-8; ask for encoding base64");
  JsonAnswer out(exchange);
  out.text = "{\"content\":";
  co_await out.string(bytes, as_text);
  out.text.append(",\"encoding\":\"").append(as_text ? "utf-8" : "base64");
  out.text.append("\",\"bytes\":").append(std::to_string(bytes.size()));
  const uint64_t size = std::get<ipc::Entry>(reply.value).size;
  out.text.append(",\"size\":");
  out.text.append(size == ISOGATE_SIZE_UNKNOWN ? "null" : std::to_string(size)).append("}\n");
  co_await out.end();
}

Task<void> write_all(Transfer& transfer, std::string_view bytes) {
  boost::system::error_code error;
  while (!error && !bytes.empty()) {
    const std::string_view piece = bytes.substr(0, kWriteAtOnce);
    const size_t done =
        co_await boost::asio::async_write(transfer.pipe, boost::asio::buffer(piece.data(), piece.size()),
                                          boost::asio::redirect_error(boost::asio::use_awaitable, error));
    transfer.moved(done);
    bytes.remove_prefix(done);
  }
  if (error) {
    transfer.cancel();
  } else {
    transfer.complete();
  }
}

Task<void> write_json(App& app, Exchange& exchange, FileBody& file) {
  auto text = take_text_field(file.body, "content");
  if (!text) throw invalid_file("`content` is missing");
  const auto encoding = text_field(file.body, "encoding").value_or("utf-8");
  if (encoding != "utf-8" && encoding != "base64") throw invalid_file("`encoding` must be utf-8 or base64");
  if (const auto mode = text_field(file.body, "mode")) {
    file.target.mode = parse_mode(*mode);
    file.target.flags |= ISOGATE_FILE_MODE_GIVEN;
  }
  set_flag(file, "append", ISOGATE_FILE_APPEND);
  set_flag(file, "durable", ISOGATE_FILE_DURABLE);
  set_flag(file, "exclusive", ISOGATE_FILE_EXCLUSIVE);
  set_flag(file, "parents", ISOGATE_FILE_PARENTS, true);
  file.body = nullptr;
  exchange.memory.hold(text->size());
  const std::string content = co_await decode_field(app, exchange, "content", std::move(*text), encoding);
  Lease lease = co_await app.sandboxes.acquire(file.wanted);
  Transfer transfer(lease, FileVerb::kWrite, file.target);
  co_await write_all(transfer, content);
  const ipc::Reply reply = co_await transfer.reply();
  throw_unless_ok(app, lease, reply);
  co_await exchange.send(
      200, "application/json",
      "{\"bytes_written\":" + std::to_string(std::get<ipc::Written>(reply.value).bytes) + "}\n");
}

Task<void> list_json(App& app, Exchange& exchange, FileBody& file) {
  const uint64_t most = app.config.limits.list_max_entries;
  ListRequest request{.target = file.target,
                      .recursive = bool_field(file.body, "recursive").value_or(false),
                      .limit = count_field(file.body, "limit", 1, most).value_or(most)};
  Lease lease = co_await app.sandboxes.acquire(file.wanted);
  Killer killer;
  exchange.on_gone([&killer] { killer.kill(); });
  const Listing listing = co_await list_files(lease, std::move(request), exchange.memory, &killer);
  if (killer.killed()) throw ClientGone{};
  if (listing.error.status != ISOGATE_OK && !listing.truncated) throw from_backend(listing.error);
  JsonAnswer out(exchange);
  out.text = "{\"entries\":[";
  for (size_t i = 0; i < listing.entries.size(); ++i) {
    if (i > 0) out.text += ',';
    append_entry(out.text, listing.entries[i]);
    co_await out.write_if_much();
  }
  out.text += listing.truncated ? "],\"truncated\":true}\n" : "],\"truncated\":false}\n";
  co_await out.end();
}

Task<void> plain_json(App& app, Exchange& exchange, FileBody& file) {
  FileVerb verb = FileVerb::kStat;
  if (exchange.route == Route::kMkdir) {
    verb = FileVerb::kMkdir;
    if (const auto mode = text_field(file.body, "mode")) file.target.mode = parse_mode(*mode);
    set_flag(file, "parents", ISOGATE_FILE_PARENTS, true);
    set_flag(file, "exclusive", ISOGATE_FILE_EXCLUSIVE);
  } else if (exchange.route == Route::kMove) {
    verb = FileVerb::kMove;
    const auto to = text_field(file.body, "to");
    if (!to) throw invalid_file("`to` is missing");
    check_path("to", *to);
    file.target.path_to = *to;
    set_flag(file, "parents", ISOGATE_FILE_PARENTS, true);
    set_flag(file, "exclusive", ISOGATE_FILE_EXCLUSIVE);
  } else if (exchange.route == Route::kRemove) {
    verb = FileVerb::kRemove;
    set_flag(file, "recursive", ISOGATE_FILE_RECURSIVE);
  }
  Lease lease = co_await app.sandboxes.acquire(file.wanted);
  Killer killer;
  exchange.on_gone([&killer] { killer.kill(); });
  const ipc::Reply reply = co_await plain_file_call(lease, verb, file.target, &killer);
  throw_unless_ok(app, lease, reply, killer.killed());
  std::string out = "{}";
  if (verb == FileVerb::kStat) {
    out.clear();
    ipc::Entry entry = std::get<ipc::Entry>(reply.value);
    entry.name = file.target.path;
    append_entry(out, entry);
  }
  co_await exchange.send(200, "application/json", out + "\n");
}

}  // namespace

Task<void> handle_file_json(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange);
  if (exchange.route == Route::kRead) {
    co_await read_json(app, exchange, file);
  } else if (exchange.route == Route::kWrite) {
    co_await write_json(app, exchange, file);
  } else if (exchange.route == Route::kList) {
    co_await list_json(app, exchange, file);
  } else {
    co_await plain_json(app, exchange, file);
  }
}

}  // namespace isogate::front
