// The common part of file calls as JSON (files.cc) and as raw bytes (raw_files.cc): checks of parameters,
// and results. Throws ApiError.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "gateway/front/app.h"
#include "gateway/front/http/exchange.h"
#include "gateway/front/sandboxes/file_calls.h"
#include "gateway/front/sandboxes/watch.h"

namespace isogate::front {

inline constexpr size_t kMaxPath = 4095;  // PATH_MAX less its NUL
inline constexpr size_t kMaxUser = 255;

uint32_t parse_mode(std::string_view text);  // octal
// Refuses a path that is too long, or holds a NUL byte; any other byte may be in a name.
void check_path(std::string_view name, std::string_view path);
void check_user(std::string_view user);

// `path`, `scope` and `user` of a body.
enum class PathField { kNeeded, kOptional };
FileTarget target_from_body(const nlohmann::json& body, PathField path = PathField::kNeeded);
// `scope` and `user` of the query, with this path.
FileTarget target_from_query(std::string path, std::string_view query);

// Of a request that writes or removes: a condition cannot be checked in one step with the write, and a part
// of a file (Content-Range; RFC 9110, 14.5) would replace all of it.
void check_unconditional(const Exchange& exchange);

// A call, and the sandbox that it goes to.
struct FileRequest {
  FileTarget target;
  Wanted wanted;
};
FileRequest request_for(const Config& config, const Exchange& exchange, FileTarget target,
                        const std::optional<std::string>& agent_in_body = std::nullopt);

// Of one file that was not changed between two answers.
inline bool are_same(const ipc::Entry& one, const ipc::Entry& other) {
  return one.size == other.size && one.mtime_ns == other.mtime_ns && one.mode == other.mode;
}
// The whole file, or the range that the request names, as the answer (raw_files.cc).
Task<void> download(App& app, Exchange& exchange, FileRequest request);

// Changes are reported from now on (watch.cc). A client that disconnects meanwhile ends it.
Task<std::unique_ptr<Watch>> begin_watch(App& app, Exchange& exchange, FileRequest request);

// The content of a JSON response: the target's range, at most `cap` bytes, held in exchange.memory.
// Throws ApiError file_too_large. A client that disconnects cancels it, and the next two.
struct FileContent {
  std::string bytes;
  uint64_t size = 0;  // of the whole file; or ISOGATE_SIZE_UNKNOWN
};
Task<FileContent> read_file(App& app, Exchange& exchange, FileRequest request, uint64_t cap);
// What is to be written, piece by piece; an empty one is its end.
using NextPiece = std::function<Task<std::string_view>()>;
// How many bytes were written. `content` is valid until this is done; `size`: of all pieces, if known.
Task<uint64_t> write_file(App& app, FileRequest request, const NextPiece& next,
                          std::optional<uint64_t> size = std::nullopt);
Task<uint64_t> write_file(App& app, FileRequest request, std::string_view content);
// In the order of the bytes of their names, a directory before its members.
Task<Listing> list_directory(App& app, Exchange& exchange, FileRequest request, bool recursive,
                             uint64_t limit);
// An object; a name that is not UTF-8 is base64, with `name_encoding`.
void append_entry(std::string& out, const ipc::Entry& entry);
// `"key":"…"`: as text, or as base64, with `key_encoding`.
void append_name(std::string& out, std::string_view key, std::string_view bytes, bool as_text);

// A call without a file's body: its reply, which is a success. A client that disconnects cancels
// it.
Task<ipc::Reply> plain_call(App& app, Exchange& exchange, ipc::FileVerb verb, FileRequest request);

// Updates the backend's health by the reply. Throws ClientGone if the client has disconnected, whatever
// the reply. If a write failed for lack of space, the error's details have the quota's numbers.
// `attempted`: bytes of the body, if known; none: there is no body.
Task<void> throw_unless_written(App& app, Lease& lease, const ipc::Reply& reply,
                                std::optional<uint64_t> attempted);
void throw_unless_ok(App& app, Lease& lease, const ipc::Reply& reply, bool client_gone = false);

}  // namespace isogate::front
