// Files of the workspace, as tools of MCP.
#include <algorithm>
#include <cstring>

#include "gateway/front/api/exec_json.h"
#include "gateway/front/api/files.h"
#include "gateway/front/api/json_body.h"
#include "gateway/front/api/json_in.h"
#include "gateway/front/mcp/tools.h"
#include "lib/text.h"

namespace isogate::front::mcp {
namespace {

constexpr uint64_t kMostRead = 1 << 20;  // for a model; more is read in parts
constexpr uint64_t kMostEntries = 1000;

FileRequest request_of(const ToolCall& call, PathField path = PathField::kNeeded) {
  return request_for(call.app.config, call.exchange, target_from_body(call.arguments, path), call.agent);
}

Task<ToolResult> call_read(ToolCall& call) {
  FileRequest request = request_of(call);
  request.target.offset = count_field(call.arguments, "offset", 0, INT64_MAX).value_or(0);
  request.target.limit = count_field(call.arguments, "limit", 1, kMostRead).value_or(kMostRead);
  const uint64_t offset = request.target.offset;
  auto [bytes, size] = co_await read_file(call.app, call.exchange, std::move(request), kMostRead);
  std::string whole = bytes;
  trim_cut_end(whole);  // the next part has all of that character
  if (!whole.empty() && goes_as_text(whole)) bytes = std::move(whole);
  const bool as_text = goes_as_text(bytes);
  call.exchange.memory.add(3 * bytes.size());  // what is made of them
  ToolResult result;
  result.text = as_text ? bytes : base64_encode(bytes);
  result.structured = "{\"content\":";
  append_json_string(result.structured, result.text);
  result.structured.append(as_text ? ",\"encoding\":\"utf-8\"" : ",\"encoding\":\"base64\"");
  result.structured.append(",\"bytes\":").append(std::to_string(bytes.size()));
  const bool known = size != ISOGATE_SIZE_UNKNOWN;
  result.structured.append(",\"size\":").append(known ? std::to_string(size) : "null").append("}");
  if (known && offset + bytes.size() < size)
    result.text.append("\n[bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes.size()) +
                       " of " + std::to_string(size) + "; read on with offset " +
                       std::to_string(offset + bytes.size()) + "]");
  co_return result;
}

ToolResult written(uint64_t bytes, std::string_view path, const std::string& more = {}) {
  ToolResult result;
  result.text = "wrote " + std::to_string(bytes) + " bytes to " + printable(path, 500) + more;
  result.structured = "{\"bytes_written\":" + std::to_string(bytes);
  return result;
}

Task<ToolResult> call_write(ToolCall& call) {
  FileRequest request = request_of(call);
  auto text = take_text_field(call.arguments, "content");
  if (!text) throw invalid_request("`content` is missing");
  const std::string encoding = encoding_field(call.arguments, "encoding");
  request.target.flags |= ISOGATE_FILE_PARENTS;
  if (bool_field(call.arguments, "append").value_or(false)) request.target.flags |= ISOGATE_FILE_APPEND;
  if (bool_field(call.arguments, "exclusive").value_or(false)) request.target.flags |= ISOGATE_FILE_EXCLUSIVE;
  if (bool_field(call.arguments, "replace").value_or(false)) request.target.flags |= ISOGATE_FILE_REPLACE;
  const std::string content =
      co_await decode_field(call.app.elsewhere, call.exchange, "content", std::move(*text), encoding);
  const std::string path = request.target.path;
  ToolResult result = written(co_await write_file(call.app, std::move(request), content), path);
  result.structured += '}';
  co_return result;
}

// glibc's memmem takes a time that is linear in both, whatever they are.
size_t next_in(std::string_view text, size_t from, std::string_view word) {
  const void* found = ::memmem(text.data() + from, text.size() - from, word.data(), word.size());
  return found == nullptr ? std::string_view::npos : static_cast<const char*>(found) - text.data();
}

size_t count_of(std::string_view text, std::string_view word) {
  size_t count = 0;
  for (size_t at = 0; (at = next_in(text, at, word)) != std::string_view::npos; at += word.size()) ++count;
  return count;
}

std::string replaced(std::string_view text, std::string_view word, std::string_view by) {
  std::string result;
  for (size_t at = 0;;) {
    const size_t found = next_in(text, at, word);
    result.append(text.substr(at, found - at));
    if (found == std::string_view::npos) return result;
    result.append(by);
    at = found + word.size();
  }
}

// Edits of an agent's files wait for each other, so that none is lost.
class EditLock {
 public:
  EditLock(App& app, std::string key) : app_(app), key_(std::move(key)) {}
  EditLock(const EditLock&) = delete;
  EditLock& operator=(const EditLock&) = delete;
  ~EditLock() {
    if (mine_) app_.edits.erase(key_);
    if (mine_) app_.edit_ended.notify();
  }
  Task<void> take() {
    co_await app_.edit_ended.until([this] { return app_.edits.insert(key_).second; });
    mine_ = true;
  }

 private:
  App& app_;
  const std::string key_;
  bool mine_ = false;
};

struct Edit {
  std::string text, before, after;
  size_t count = 0;
};

// The file is written whole: a program that reads it meanwhile sees all of it or nothing. One that writes it
// between the two is overwritten.
Task<ToolResult> call_edit(ToolCall& call) {
  const FileRequest request = request_of(call);
  const auto edit = std::make_shared<Edit>();
  edit->before = take_text_field(call.arguments, "old_text").value_or("");
  auto after = take_text_field(call.arguments, "new_text");
  if (edit->before.empty()) throw invalid_request("`old_text` is missing or empty");
  if (!after) throw invalid_request("`new_text` is missing");
  edit->after = std::move(*after);
  const bool all = bool_field(call.arguments, "replace_all").value_or(false);
  const uint64_t most = call.app.config.limits.max_json_bytes;
  EditLock lock(call.app, call.exchange.principal.tenant + '\0' + call.agent);
  co_await lock.take();
  FileRequest reading = request;
  reading.target.limit = most + 1;
  edit->text = (co_await read_file(call.app, call.exchange, std::move(reading), most)).bytes;
  const std::string& tenant = call.exchange.principal.tenant;
  Killer& client = call.exchange.watch_client();
  std::function<void()> work = [edit] { edit->count = count_of(edit->text, edit->before); };
  co_await call.app.elsewhere.run(tenant, client, std::move(work));
  const size_t count = edit->count;
  if (count == 0)
    throw invalid_request(
        "`old_text` is not in the file: read the file, and copy the text exactly, including spaces");
  if (count > 1 && !all)
    throw invalid_request("`old_text` is in the file " + std::to_string(count) +
                          " times: give more of what is around it, or `replace_all`");
  call.exchange.memory.add(edit->text.size() - count * edit->before.size() + count * edit->after.size());
  work = [edit] { edit->text = replaced(edit->text, edit->before, edit->after); };
  co_await call.app.elsewhere.run(tenant, client, std::move(work));
  call.exchange.check_admitted();
  FileRequest writing = request;
  writing.target.flags |= ISOGATE_FILE_REPLACE;
  const std::string times = " with " + std::to_string(count) + " replaced";
  const uint64_t bytes = co_await write_file(call.app, std::move(writing), edit->text);
  ToolResult result = written(bytes, request.target.path, times);
  result.structured += ",\"replacements\":" + std::to_string(count) + "}";
  co_return result;
}

std::string_view mark_of(uint32_t type) {
  return type == ISOGATE_ENTRY_DIRECTORY ? "/" : type == ISOGATE_ENTRY_SYMLINK ? "@" : "";
}

Task<ToolResult> call_list(ToolCall& call) {
  FileRequest request = request_of(call, PathField::kOptional);
  const bool recursive = bool_field(call.arguments, "recursive").value_or(false);
  const uint64_t most = std::min<uint64_t>(kMostEntries, call.app.config.limits.list_max_entries);
  const uint64_t limit = count_field(call.arguments, "limit", 1, most).value_or(most);
  const Listing listing =
      co_await list_directory(call.app, call.exchange, std::move(request), recursive, limit);
  ToolResult result;
  result.structured = "{\"entries\":[";
  for (const ipc::Entry& entry : listing.entries) {
    if (!result.structured.ends_with('[')) result.structured += ',';
    append_entry(result.structured, entry);
    result.text.append(printable(entry.name, 4096)).append(mark_of(entry.type)).append("\n");
  }
  call.exchange.memory.add(result.text.size() + result.structured.size());
  result.structured += listing.truncated ? "],\"truncated\":true}" : "],\"truncated\":false}";
  if (listing.truncated) result.text += "[there are more]\n";
  if (listing.entries.empty()) result.text = "[the directory is empty]\n";
  co_return result;
}

constexpr std::string_view kReadInput = R"({"properties": {
  "path": {"type": "string", "description": "in the workspace; /workspace/… is the same"},
  "offset": {"type": "integer", "minimum": 0, "description": "of the first byte"},
  "limit": {"type": "integer", "minimum": 1, "maximum": 1048576, "description": "bytes at most"},
  "scope": {"enum": ["workspace", "sandbox"], "description": "sandbox: `path` is absolute in the whole sandbox"}},
  "required": ["path"]})";
constexpr std::string_view kReadOutput = R"({"properties": {
  "content": {"type": "string"}, "encoding": {"enum": ["utf-8", "base64"]},
  "bytes": {"type": "integer", "description": "in `content`"},
  "size": {"type": ["integer", "null"], "description": "of the whole file"}},
  "required": ["content", "encoding", "bytes", "size"]})";
constexpr std::string_view kWriteInput = R"({"properties": {
  "path": {"type": "string", "description": "in the workspace; its directories are created"},
  "content": {"type": "string"},
  "encoding": {"enum": ["utf-8", "base64"], "description": "of `content`; utf-8 when left out"},
  "append": {"type": "boolean", "description": "to what is there"},
  "exclusive": {"type": "boolean", "description": "refuse when it exists"},
  "replace": {"type": "boolean", "description": "replace a read-only file, too"},
  "scope": {"enum": ["workspace", "sandbox"]}},
  "required": ["path", "content"]})";
constexpr std::string_view kWriteOutput =
    R"({"properties": {"bytes_written": {"type": "integer"}}, "required": ["bytes_written"]})";
constexpr std::string_view kEditInput = R"({"properties": {
  "path": {"type": "string"},
  "old_text": {"type": "string", "description": "as it is in the file, and there once"},
  "new_text": {"type": "string", "description": "in its place"},
  "replace_all": {"type": "boolean", "description": "wherever it is, once or more"},
  "scope": {"enum": ["workspace", "sandbox"]}},
  "required": ["path", "old_text", "new_text"]})";
constexpr std::string_view kEditOutput = R"({"properties": {
  "bytes_written": {"type": "integer"}, "replacements": {"type": "integer"}},
  "required": ["bytes_written", "replacements"]})";
constexpr std::string_view kListInput = R"({"properties": {
  "path": {"type": "string", "description": "a directory; left out: the workspace"},
  "recursive": {"type": "boolean"},
  "limit": {"type": "integer", "minimum": 1, "maximum": 1000, "description": "entries at most"},
  "scope": {"enum": ["workspace", "sandbox"]}}})";
constexpr std::string_view kListOutput = R"({"properties": {
  "entries": {"type": "array", "items": {"type": "object", "properties": {
    "name": {"type": "string"}, "name_encoding": {"const": "base64"},
    "type": {"enum": ["file", "directory", "symlink", "other"]}, "size": {"type": "integer"},
    "mode": {"type": "string"}, "mtime_ms": {"type": "integer"}},
    "required": ["name", "type", "size", "mode", "mtime_ms"]}},
  "truncated": {"type": "boolean"}},
  "required": ["entries", "truncated"]})";

constexpr Tool kFileTools[] = {
    {.name = "read_file",
     .title = "Read a file",
     .description = "Reads a file of the sandbox, or a part of it. Bytes that are not UTF-8 come as base64.",
     .input = kReadInput,
     .output = kReadOutput,
     .reads_only = true,
     .idempotent = true,
     .call = call_read},
    {.name = "write_file",
     .title = "Write a file",
     .description =
         "Writes a whole file of the sandbox, or appends to it. It is written completely or not at all.",
     .input = kWriteInput,
     .output = kWriteOutput,
     .destroys = true,
     .call = call_write},
    {.name = "edit_file",
     .title = "Edit a file",
     .description = "Replaces a text that a file of the sandbox has by another, once or wherever it is.",
     .input = kEditInput,
     .output = kEditOutput,
     .destroys = true,
     .call = call_edit},
    {.name = "list_files",
     .title = "List files",
     .description = "Lists a directory of the sandbox, or all that is below it.",
     .input = kListInput,
     .output = kListOutput,
     .reads_only = true,
     .idempotent = true,
     .call = call_list},
};

}  // namespace

std::span<const Tool> file_tools() { return kFileTools; }

}  // namespace isogate::front::mcp
