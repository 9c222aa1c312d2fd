// Every call of the native HTTP door, once: what it is named, which parameters its query string knows, and
// which fields its JSON body. The router, the request parser and the check against docs/openapi.yaml all read
// this table.
#pragma once

#include <array>
#include <span>
#include <string_view>

namespace isogate::front {

enum class Route {
  kExec,
  kExecStream,
  kRead,
  kWrite,
  kList,
  kStat,
  kMkdir,
  kMove,
  kRemove,
  kFileGet,
  kFileHead,
  kFilePut,
  kFileDelete,
  kSandboxList,
  kSandboxDelete,
  kBackends,
  kHealthz,
  kLivez,
  kReadyz,
  kMetrics,
  kOpenapi,
};

struct RouteRow {
  Route route;
  std::string_view method;
  std::string_view path;  // as in docs/openapi.yaml; {path} may hold slashes
  std::string_view operation_id;
  bool needs_key;
  std::span<const std::string_view> fields;           // of the JSON body; empty: no JSON body
  std::span<const std::string_view> parameters = {};  // of the query string
};

namespace fields {
inline constexpr std::array<std::string_view, 15> kExec = {
    "agent_id",       "argv",        "artifact_dir", "backend",          "background",    "cgroup",
    "command",        "cwd",         "env",          "max_output_bytes", "min_isolation", "stdin",
    "stdin_encoding", "timeout_sec", "user"};
inline constexpr std::array<std::string_view, 16> kExecStream = {
    "agent_id",    "argv", "artifact_dir", "backend",          "background",    "cgroup", "command",
    "cwd",         "env",  "lines",        "max_output_bytes", "min_isolation", "stdin",  "stdin_encoding",
    "timeout_sec", "user"};
inline constexpr std::array<std::string_view, 7> kRead = {"agent_id", "encoding", "limit", "offset",
                                                          "path",     "scope",    "user"};
inline constexpr std::array<std::string_view, 11> kWrite = {"agent_id", "append",    "content", "durable",
                                                            "encoding", "exclusive", "mode",    "parents",
                                                            "path",     "scope",     "user"};
inline constexpr std::array<std::string_view, 6> kList = {"agent_id",  "limit", "path",
                                                          "recursive", "scope", "user"};
inline constexpr std::array<std::string_view, 4> kStat = {"agent_id", "path", "scope", "user"};
inline constexpr std::array<std::string_view, 7> kMkdir = {"agent_id", "exclusive", "mode", "parents",
                                                           "path",     "scope",     "user"};
inline constexpr std::array<std::string_view, 7> kMove = {"agent_id", "exclusive", "parents", "path",
                                                          "scope",    "to",        "user"};
inline constexpr std::array<std::string_view, 5> kRemove = {"agent_id", "path", "recursive", "scope", "user"};
}  // namespace fields

namespace parameters {
inline constexpr std::array<std::string_view, 2> kFileGet = {"scope", "user"};
inline constexpr std::array<std::string_view, 7> kFilePut = {"append",  "durable", "exclusive", "mode",
                                                             "parents", "scope",   "user"};
inline constexpr std::array<std::string_view, 3> kFileDelete = {"recursive", "scope", "user"};
inline constexpr std::array<std::string_view, 1> kSandboxDelete = {"purge"};
inline constexpr std::array<std::string_view, 1> kReadyz = {"verbose"};
}  // namespace parameters

inline constexpr std::array kRoutes = {
    RouteRow{Route::kExec, "POST", "/exec", "exec", true, fields::kExec},
    RouteRow{Route::kExecStream, "POST", "/exec-stream", "execStream", true, fields::kExecStream},
    RouteRow{Route::kRead, "POST", "/workspace/read", "readFile", true, fields::kRead},
    RouteRow{Route::kWrite, "POST", "/workspace/write", "writeFile", true, fields::kWrite},
    RouteRow{Route::kList, "POST", "/workspace/list", "listDirectory", true, fields::kList},
    RouteRow{Route::kStat, "POST", "/workspace/stat", "statFile", true, fields::kStat},
    RouteRow{Route::kMkdir, "POST", "/workspace/mkdir", "makeDirectory", true, fields::kMkdir},
    RouteRow{Route::kMove, "POST", "/workspace/move", "moveFile", true, fields::kMove},
    RouteRow{Route::kRemove, "POST", "/workspace/remove", "removeFile", true, fields::kRemove},
    RouteRow{Route::kFileGet,
             "GET",
             "/workspace/files/{agent_id}/{path}",
             "downloadFile",
             true,
             {},
             parameters::kFileGet},
    RouteRow{Route::kFileHead,
             "HEAD",
             "/workspace/files/{agent_id}/{path}",
             "headFile",
             true,
             {},
             parameters::kFileGet},
    RouteRow{Route::kFilePut,
             "PUT",
             "/workspace/files/{agent_id}/{path}",
             "uploadFile",
             true,
             {},
             parameters::kFilePut},
    RouteRow{Route::kFileDelete,
             "DELETE",
             "/workspace/files/{agent_id}/{path}",
             "deleteFile",
             true,
             {},
             parameters::kFileDelete},
    RouteRow{Route::kSandboxList, "GET", "/sandboxes", "listSandboxes", true, {}},
    RouteRow{Route::kSandboxDelete,
             "DELETE",
             "/sandboxes/{agent_id}",
             "deleteSandbox",
             true,
             {},
             parameters::kSandboxDelete},
    RouteRow{Route::kBackends, "GET", "/backends", "listBackends", true, {}},
    RouteRow{Route::kHealthz, "GET", "/healthz", "healthz", false, {}},
    RouteRow{Route::kLivez, "GET", "/livez", "livez", false, {}},
    RouteRow{Route::kReadyz, "GET", "/readyz", "readyz", false, {}, parameters::kReadyz},
    RouteRow{Route::kMetrics, "GET", "/metrics", "metrics", true, {}},
    RouteRow{Route::kOpenapi, "GET", "/openapi.json", "openapi", true, {}},
};

}  // namespace isogate::front
