#include "gateway/front/api/files.h"

#include <algorithm>
#include <array>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "gateway/front/api/access.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/api/router.h"
#include "gateway/front/http/json_answer.h"
#include "gateway/front/sandboxes/tenant_disks.h"
#include "lib/text.h"

namespace isogate::front {
namespace asio = boost::asio;
namespace {

using ipc::FileVerb;
using nlohmann::json;

constexpr size_t kWriteAtOnce = 64 * 1024, kSortAtOnce = 64 * 1024;

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

struct FileBody : FileRequest {
  json body;
};

uint32_t parse_scope(std::string_view scope) {
  if (scope == "workspace") return ISOGATE_SCOPE_WORKSPACE;
  if (scope == "sandbox") return ISOGATE_SCOPE_SANDBOX;
  throw invalid_request("`scope` must be workspace or sandbox");
}

// Keeps the parsed body alone, which has the size of its text.
Task<FileBody> read_file_body(App& app, Exchange& exchange, PathField path = PathField::kNeeded) {
  FileBody file;
  file.body = co_await read_json_body(app.elsewhere, exchange, app.config.limits.max_json_bytes * 3 / 2);
  const auto agent = text_field(file.body, "agent_id");
  static_cast<FileRequest&>(file) =
      request_for(app.config, exchange, target_from_body(file.body, path), agent);
  co_return file;
}

void set_flag(FileBody& file, std::string_view field, uint32_t flag, bool otherwise = false) {
  if (bool_field(file.body, field).value_or(otherwise)) file.target.flags |= flag;
}

Task<std::string> gather(Transfer& transfer, uint64_t cap, ByteShare& memory) {
  std::string bytes;
  std::string chunk(65536, '\0');
  for (;;) {
    boost::system::error_code error;
    const size_t n = co_await transfer.pipe.async_read_some(asio::buffer(chunk),
                                                            asio::redirect_error(asio::use_awaitable, error));
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

Task<void> handle_read(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange);
  const auto encoding = text_field(file.body, "encoding").value_or("auto");
  if (encoding != "auto" && encoding != "utf-8" && encoding != "base64")
    throw invalid_request("`encoding` must be auto, utf-8 or base64");
  const uint64_t cap = app.config.limits.max_json_bytes;
  file.target.offset = count_field(file.body, "offset", 0, INT64_MAX).value_or(0);
  file.target.limit = count_field(file.body, "limit", 0, cap).value_or(cap + 1);
  const auto [bytes, size] = co_await read_file(app, exchange, std::move(file), cap);
  const bool is_asked = encoding != "auto";
  TextJudge judge;
  if (encoding != "base64") judge = co_await judge_text(bytes);
  const bool as_text = is_asked ? encoding == "utf-8" : judge.as_text();
  if (encoding == "utf-8" && !judge.utf8())
    throw invalid_request("the file is not UTF-8; ask for encoding base64");
  JsonAnswer out(exchange);
  out.text = "{\"content\":";
  co_await out.string(bytes, as_text);
  out.text.append(",\"encoding\":\"").append(as_text ? "utf-8" : "base64");
  out.text.append("\",\"bytes\":").append(std::to_string(bytes.size()));
  out.text.append(",\"size\":");
  out.text.append(size == ISOGATE_SIZE_UNKNOWN ? "null" : std::to_string(size)).append("}\n");
  co_await out.end();
}

Task<void> handle_write(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange);
  auto text = take_text_field(file.body, "content");
  if (!text) throw invalid_request("`content` is missing");
  const auto encoding = encoding_field(file.body, "encoding");
  if (const auto mode = text_field(file.body, "mode")) {
    file.target.mode = parse_mode(*mode);
    file.target.flags |= ISOGATE_FILE_MODE_GIVEN;
  }
  set_flag(file, "append", ISOGATE_FILE_APPEND);
  set_flag(file, "durable", ISOGATE_FILE_DURABLE);
  set_flag(file, "exclusive", ISOGATE_FILE_EXCLUSIVE);
  set_flag(file, "parents", ISOGATE_FILE_PARENTS, true);
  set_flag(file, "replace", ISOGATE_FILE_REPLACE);
  file.body = nullptr;
  exchange.memory.hold(text->size());
  const std::string content =
      co_await decode_field(app.elsewhere, exchange, "content", std::move(*text), encoding);
  const uint64_t written = co_await write_file(app, std::move(file), content);
  nlohmann::ordered_json answer{{"bytes_written", written}};
  co_await send_json(exchange, std::move(answer));
}

Task<void> handle_list(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange, PathField::kOptional);
  const uint64_t most = app.config.limits.list_max_entries;
  const bool recursive = bool_field(file.body, "recursive").value_or(false);
  const uint64_t limit = count_field(file.body, "limit", 1, most).value_or(most);
  const Listing listing = co_await list_directory(app, exchange, std::move(file), recursive, limit);
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

Task<void> handle_stat(App& app, Exchange& exchange) {
  const FileBody file = co_await read_file_body(app, exchange);
  const ipc::Reply reply = co_await plain_call(app, exchange, FileVerb::kStat, file);
  ipc::Entry entry = std::get<ipc::Entry>(reply.value);
  entry.name = file.target.path;
  std::string out;
  append_entry(out, entry);
  co_await exchange.send(200, "application/json", out + "\n");
}

Task<void> handle_mkdir(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange);
  if (const auto mode = text_field(file.body, "mode")) file.target.mode = parse_mode(*mode);
  set_flag(file, "parents", ISOGATE_FILE_PARENTS, true);
  set_flag(file, "exclusive", ISOGATE_FILE_EXCLUSIVE);
  co_await plain_call(app, exchange, FileVerb::kMkdir, std::move(file));
  co_await send_json(exchange);
}

Task<void> handle_move(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange);
  const auto to = text_field(file.body, "to");
  if (!to) throw invalid_request("`to` is missing");
  check_path("to", *to);
  file.target.path_to = *to;
  set_flag(file, "parents", ISOGATE_FILE_PARENTS, true);
  set_flag(file, "exclusive", ISOGATE_FILE_EXCLUSIVE);
  set_flag(file, "replace", ISOGATE_FILE_REPLACE);
  co_await plain_call(app, exchange, FileVerb::kMove, std::move(file));
  co_await send_json(exchange);
}

Task<void> handle_remove(App& app, Exchange& exchange) {
  FileBody file = co_await read_file_body(app, exchange);
  set_flag(file, "recursive", ISOGATE_FILE_RECURSIVE);
  co_await plain_call(app, exchange, FileVerb::kRemove, std::move(file));
  co_await send_json(exchange);
}

constexpr std::string_view kReadFields[] = {"agent_id", "encoding", "limit", "offset",
                                            "path",     "scope",    "user"};
constexpr std::string_view kWriteFields[] = {"agent_id", "append",    "content", "durable",
                                             "encoding", "exclusive", "mode",    "parents",
                                             "path",     "replace",   "scope",   "user"};
constexpr std::string_view kListFields[] = {"agent_id", "limit", "path", "recursive", "scope", "user"};
constexpr std::string_view kStatFields[] = {"agent_id", "path", "scope", "user"};
constexpr std::string_view kMkdirFields[] = {"agent_id", "exclusive", "mode", "parents",
                                             "path",     "scope",     "user"};
constexpr std::string_view kMoveFields[] = {"agent_id", "exclusive", "parents", "path",
                                            "replace",  "scope",     "to",      "user"};
constexpr std::string_view kRemoveFields[] = {"agent_id", "path", "recursive", "scope", "user"};

constexpr Route kFileRoutes[] = {
    {"POST", "/workspace/read", "readFile", handle_read, kReadFields},
    {"POST", "/workspace/write", "writeFile", handle_write, kWriteFields},
    {"POST", "/workspace/list", "listDirectory", handle_list, kListFields},
    {"POST", "/workspace/stat", "statFile", handle_stat, kStatFields},
    {"POST", "/workspace/mkdir", "makeDirectory", handle_mkdir, kMkdirFields},
    {"POST", "/workspace/move", "moveFile", handle_move, kMoveFields},
    {"POST", "/workspace/remove", "removeFile", handle_remove, kRemoveFields},
};

}  // namespace

std::span<const Route> file_routes() { return kFileRoutes; }

void append_entry(std::string& out, const ipc::Entry& entry) {
  out += '{';
  append_name(out, "name", entry.name, is_utf8(entry.name));
  std::array<char, 8> mode{};
  const auto end = std::to_chars(mode.data(), mode.data() + mode.size(), entry.mode & 07777, 8).ptr;
  out.append(",\"type\":\"")
      .append(type_name(entry.type))
      .append("\",\"size\":")
      .append(std::to_string(entry.size));
  out.append(",\"mode\":\"0")
      .append(mode.data(), end)
      .append("\",\"mtime_ms\":")
      .append(std::to_string(entry.mtime_ns / 1000000))
      .append("}");
}

void append_name(std::string& out, std::string_view key, std::string_view bytes, bool as_text) {
  out.append("\"").append(key).append("\":");
  if (as_text) return append_json_string(out, bytes);
  out += '"';
  append_base64(out, bytes);
  out.append("\",\"").append(key).append("_encoding\":\"base64\"");
}

Task<FileContent> read_file(App& app, Exchange& exchange, FileRequest request, uint64_t cap) {
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  const uint64_t offset = request.target.offset, limit = request.target.limit;
  Killer& killer = exchange.watch_client();
  Transfer transfer(lease, FileVerb::kRead, std::move(request.target), &killer);
  std::string bytes = co_await gather(transfer, cap, exchange.memory);
  const ipc::Reply reply = co_await transfer.reply();
  throw_unless_ok(app, lease, reply, killer.killed());
  const uint64_t size = std::get<ipc::Entry>(reply.value).size;
  const uint64_t most = std::min(limit, size - std::min(size, offset));  // less, if it has shrunk
  if (bytes.size() > most)
    throw ApiError{.code = Code::kInternal,
                   .message = "a defect of the plugin: read() sent " + std::to_string(bytes.size()) +
                              " bytes where there are at most " + std::to_string(most)};
  co_return FileContent{std::move(bytes), size};
}

Task<uint64_t> write_file(App& app, FileRequest request, const NextPiece& next,
                          std::optional<uint64_t> size) {
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  Transfer transfer(lease, FileVerb::kWrite, std::move(request.target));
  uint64_t bytes = 0;
  boost::system::error_code error;
  for (std::string_view piece = co_await next(); !piece.empty(); piece = co_await next()) {
    if (error) break;  // the backend refused early, and its reply has the reason
    const size_t done = co_await asio::async_write(transfer.pipe, asio::buffer(piece.data(), piece.size()),
                                                   asio::redirect_error(asio::use_awaitable, error));
    transfer.moved(done);
    bytes += done;
  }
  if (error) {
    transfer.cancel();
  } else {
    transfer.complete();
  }
  const ipc::Reply reply = co_await transfer.reply();
  co_await throw_unless_written(app, lease, reply, size.value_or(bytes));
  co_return std::get<ipc::Written>(reply.value).bytes;
}

Task<uint64_t> write_file(App& app, FileRequest request, std::string_view content) {
  const size_t size = content.size();
  const NextPiece next = [&content]() -> Task<std::string_view> {
    const std::string_view piece = content.substr(0, kWriteAtOnce);
    content.remove_prefix(piece.size());
    co_return piece;
  };
  co_return co_await write_file(app, std::move(request), next, size);
}

namespace {

// A directory before its members, and those in the order of their bytes.
bool comes_before(const ipc::Entry& a, const ipc::Entry& b) {
  const auto [x, y] = std::ranges::mismatch(a.name, b.name);
  if (x == a.name.end() || y == b.name.end()) return x == a.name.end() && y != b.name.end();
  const auto rank = [](char each) { return each == '/' ? 0 : static_cast<unsigned char>(each) + 1; };
  return rank(*x) < rank(*y);
}

// A backend has them in the order of its file system.
Task<void> put_in_order(App& app, const std::string& tenant, Killer& killer,
                        std::vector<ipc::Entry>& entries) {
  size_t bytes = 0;
  for (const ipc::Entry& entry : entries) bytes += entry.name.size();
  if (bytes <= kSortAtOnce) {
    std::ranges::sort(entries, comes_before);
    co_return;
  }
  const auto moved = std::make_shared<std::vector<ipc::Entry>>(std::move(entries));
  std::function<void()> work = [moved] { std::ranges::sort(*moved, comes_before); };
  co_await app.elsewhere.run(tenant, killer, std::move(work));
  entries = std::move(*moved);
}

}  // namespace

Task<Listing> list_directory(App& app, Exchange& exchange, FileRequest request, bool recursive,
                             uint64_t limit) {
  Killer& killer = exchange.watch_client();
  Listing listing;
  {
    Lease lease = co_await app.sandboxes.acquire(request.wanted);
    ListRequest wanted{.target = std::move(request.target), .recursive = recursive, .limit = limit};
    listing = co_await list_files(lease, std::move(wanted), exchange.memory, killer);
    if (killer.killed()) throw ClientGone{};
    if (!listing.truncated) throw_unless_ok(app, lease, listing.reply);
  }
  co_await put_in_order(app, request.wanted.tenant, killer, listing.entries);
  co_return listing;
}

void throw_unless_ok(App& app, Lease& lease, const ipc::Reply& reply, bool client_gone) {
  app.backends.judge(*lease.backend, lease.sandbox->row, reply);
  if (client_gone) throw ClientGone{};
  if (reply.status == ISOGATE_OK) return;
  lease.note(reply.status);
  ApiError error = from_backend(reply.error());
  error.of_file = true;
  if (reply.status == ISOGATE_LOST)
    error.message = "contact with the backend was lost during the call: " + reply.message;
  throw error;
}

Task<void> throw_unless_written(App& app, Lease& lease, const ipc::Reply& reply,
                                std::optional<uint64_t> attempted) {
  if (reply.status != ISOGATE_RESOURCE_EXHAUSTED || reply.os_errno != EDQUOT)
    co_return throw_unless_ok(app, lease, reply);
  app.backends.judge(*lease.backend, lease.sandbox->row, reply);
  ApiError error = from_backend(reply.error());
  error.of_file = true;
  const auto asked = co_await ask_for_disk(*lease.sandbox, lease.channel);
  nlohmann::ordered_json details = nlohmann::ordered_json::object();
  if (attempted) details["attempted_bytes"] = *attempted;
  if (const auto& use = lease.sandbox->disk; asked && use) {
    details["used_bytes"] = use->used_bytes;
    details["limit_bytes"] = use->limit_bytes;
    details["used_files"] = use->used_files;
    details["limit_files"] = use->limit_files;
  }
  error.details_json = details.dump();
  throw error;
}

uint32_t parse_mode(std::string_view text) {
  const auto mode = number_in<uint32_t>(text, 8);
  if (!mode || *mode > 0777)
    throw invalid_request("`mode` must be octal permission bits like \"0644\", at most 0777");
  return *mode;
}

void check_path(std::string_view name, std::string_view path) {
  if (path.size() > kMaxPath)
    throw invalid_request("`" + std::string(name) + "` is longer than " + std::to_string(kMaxPath) +
                          " bytes");
  if (path.find('\0') != std::string_view::npos)
    throw invalid_request("`" + std::string(name) + "` holds a NUL byte: " + printable(path, 200));
}

void check_user(std::string_view user) {
  if (user.size() > kMaxUser)
    throw invalid_request("`user` is longer than " + std::to_string(kMaxUser) + " bytes");
}

FileTarget target_from_body(const json& body, PathField path) {
  FileTarget target;
  const auto given = text_field(body, "path");
  if (!given && path == PathField::kNeeded) throw invalid_request("`path` is missing");
  target.path = given.value_or("");
  check_path("path", target.path);
  target.scope = parse_scope(text_field(body, "scope").value_or("workspace"));
  target.user = text_field(body, "user").value_or("");
  return target;
}

FileTarget target_from_query(std::string path, std::string_view query) {
  check_path("path", path);
  FileTarget target;
  target.path = std::move(path);
  target.scope = parse_scope(query_parameter(query, "scope").value_or("workspace"));
  target.user = query_parameter(query, "user").value_or("");
  return target;
}

void check_unconditional(const Exchange& exchange) {
  if (exchange.has_header("Content-Range"))
    throw invalid_request(
        "`Content-Range`: a part of a file cannot be uploaded; send all of it without that header");
  for (const char* name : {"If-Match", "If-None-Match", "If-Unmodified-Since"})
    if (exchange.has_header(name))
      throw ApiError{.code = Code::kUnsupported,
                     .message = "`" + std::string(name) +
                                "` is not supported here, because the file may change between the check and "
                                "the call: leave it out"};
}

FileRequest request_for(const Config& config, const Exchange& exchange, FileTarget target,
                        const std::optional<std::string>& agent_in_body) {
  check_user(target.user);
  target.request_id = exchange.request_id;
  target.idle = std::chrono::seconds(config.limits.body_idle_timeout_sec);
  uint64_t needed = 0;
  if (target.scope == ISOGATE_SCOPE_SANDBOX) needed |= ISOGATE_CAP_SCOPE_SANDBOX;
  if (!target.user.empty()) needed |= ISOGATE_CAP_USER;
  Wanted wanted{.tenant = exchange.principal.tenant,
                .agent = agent_of(exchange, config.multi_agent, agent_in_body),
                .backend = {},
                .min_isolation = {},
                .capabilities = needed,
                .request_id = exchange.request_id};
  return {std::move(target), std::move(wanted)};
}

Task<ipc::Reply> plain_call(App& app, Exchange& exchange, FileVerb verb, FileRequest request) {
  Lease lease = co_await app.sandboxes.acquire(request.wanted);
  Killer& killer = exchange.watch_client();
  ipc::Reply reply = co_await plain_file_call(lease, verb, std::move(request.target), killer);
  if (verb == FileVerb::kMkdir && !killer.killed()) {
    co_await throw_unless_written(app, lease, reply, std::nullopt);
  } else {
    throw_unless_ok(app, lease, reply, killer.killed());
  }
  co_return reply;
}

}  // namespace isogate::front
