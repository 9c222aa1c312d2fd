// The records between front and backend host: one C++ struct per record, the ABI's fields with
// owned strings. Encoded by codec.h, carried by channel.h.
//
// The front sends calls; the host answers each once with a Reply that repeats its id. A host's
// first record is Hello. Descriptors travel beside a record in the order given at each struct; an
// absent one (empty Fd) is left out and marked as absent in the record.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "isogate/backend.h"
#include "isogate/disk.h"
#include "lib/error.h"
#include "lib/fd.h"
#include "lib/limits.h"

namespace isogate::ipc {

struct Hello {  // host → front, once, when the plugin is loaded and created
  std::string plugin_id, plugin_version, summary;
  uint32_t isolation = 0, locality = 0;
  uint64_t capabilities = 0;
  // At a time; further ones would wait unread. Probes and closes have a reserve beside them.
  uint32_t max_execs = 0, max_file_calls = 0, max_watches = 0;
  uint32_t max_sandboxes = 0;    // open at a time, by the descriptors that each takes
  uint32_t max_connections = 0;  // to ports of sandboxes, at a time
};

struct CallHeader {
  uint64_t id = 0;                  // chosen by the front, unique on this channel
  int64_t deadline_ns = INT64_MAX;  // CLOCK_MONOTONIC
  std::string request_id;
  Fd cancel;  // descriptor 1
};

struct ProbeCall {
  CallHeader call;
};

struct PingCall {  // answered by the host itself, whatever its plugin does
  CallHeader call;
};

struct OpenCall {
  CallHeader call;
  uint32_t flags = 0, egress = 0;
  std::string sandbox_id, tenant, agent_id, handle;
  std::string image;  // empty: the backend's own
  Limits limits;
};

struct CloseCall {
  CallHeader call;
  std::string sandbox_id;
  uint32_t mode = ISOGATE_CLOSE_DETACH;
};

struct EnumerateCall {
  CallHeader call;
  Fd out;  // descriptor 2: Found records, each encoded with encode_item()
};

// Of orphans (isogate/orphans.h).
struct OrphansCall {
  CallHeader call;
  std::string sandbox_id;  // all of it is removed; empty: all orphans are listed
  uint32_t flags = 0;      // ISOGATE_ORPHANS_*
  Fd out;                  // descriptor 2, of a listing: Found records, each encoded with encode_item()
};

// isogate/kept_exec.h
enum class Keep : uint32_t { kNot, kStart, kRejoin };

struct ExecCall {
  CallHeader call;
  std::string sandbox_id, exec_id, cwd, user;
  uint32_t flags = 0;
  uint16_t rows = 0, cols = 0;
  std::vector<std::string> argv;
  std::vector<std::pair<std::string, std::string>> env;
  Limits limits;
  Keep keep = Keep::kNot;
  uint32_t grace_sec = 0;                // kStart
  Fd std_in, std_out, std_err, control;  // descriptors 2 to 5
  Fd detach, input_end, state;           // descriptors 6 to 8, with keep; state with kRejoin
};

enum class FileVerb : uint32_t { kRead, kWrite, kList, kStat, kMkdir, kMove, kRemove, kDiskUse, kWatch };

struct FileArguments {
  std::string path, path_to, user;
  uint32_t scope = ISOGATE_SCOPE_WORKSPACE, flags = 0, mode = 0;
  uint64_t offset = 0, limit = 0;
};

struct FileCall : FileArguments {
  CallHeader call;
  FileVerb verb = FileVerb::kStat;
  std::string sandbox_id;
  Fd body;      // descriptor 2: read, list and watch write to it, write reads it
  Fd complete;  // descriptor 3: write's complete_fd
};

struct EvidenceCall {
  CallHeader call;
  std::string sandbox_id, gateway_address;
  uint32_t gateway_port = 0;
  std::string gateway_listeners;
};

struct ConnectCall {
  CallHeader call;
  std::string sandbox_id;
  uint32_t port = 0;
  Fd stream, ready;  // descriptors 2 and 3: as in isogate_connect_request
};

using Call = std::variant<ProbeCall, OpenCall, CloseCall, EnumerateCall, ExecCall, FileCall, EvidenceCall,
                          PingCall, OrphansCall, ConnectCall>;

inline CallHeader& header_of(Call& call) {
  return std::visit([](auto& each) -> CallHeader& { return each.call; }, call);
}

// The plugin's function that it is for, as backend.h and the extensions name it; `ping` is the host's own.
inline std::string_view function_of(const Call& call) {
  static constexpr std::string_view kFunctions[] = {"probe", "open",     "close", "enumerate", "exec",
                                                    "file",  "evidence", "ping",  "orphans",   "connect"};
  static_assert(std::size(kFunctions) == std::variant_size_v<Call>);
  static constexpr std::string_view kVerbs[] = {"read", "write",  "list",     "stat", "mkdir",
                                                "move", "remove", "disk_use", "watch"};
  static_assert(std::size(kVerbs) == static_cast<size_t>(FileVerb::kWatch) + 1);
  const auto* file = std::get_if<FileCall>(&call);
  return file == nullptr ? kFunctions[call.index()] : kVerbs[static_cast<size_t>(file->verb)];
}

struct Probe {
  uint32_t verdict = ISOGATE_PROBE_UNAVAILABLE, isolation = 0, locality = 0;
  uint64_t capabilities = 0;
  std::string detail;
};

struct Opened {
  uint32_t flags = 0, isolation = 0, uid = UINT32_MAX;
  std::string handle;
};

struct Entry {  // also the item of a listing
  uint32_t type = 0, mode = 0;
  uint64_t size = 0;
  int64_t mtime_ns = 0;
  std::string name;
};

struct Written {
  uint64_t bytes = 0;
};

struct Found {  // the item of an enumeration, and of orphans
  std::string sandbox_id, handle;
  uint32_t flags = 0;
};

struct Reply {
  uint64_t id = 0;
  isogate_status status = ISOGATE_INTERNAL;
  int32_t os_errno = 0;
  std::string message;  // empty when status is ISOGATE_OK
  // What the call asked for; monostate after a failure and where there is no result.
  std::variant<std::monostate, Probe, Opened, isogate_exec_result, Entry, Written, isogate_evidence,
               isogate_disk_use>
      value;

  [[nodiscard]] Error error() const { return {status, os_errno, message}; }
};

}  // namespace isogate::ipc
