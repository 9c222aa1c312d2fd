#include "gateway/host/requests.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <variant>

#include "gateway/config/images.h"
#include "isogate/orphans.h"
#include "lib/text.h"
#include "runner/files/workspace_path.h"

namespace isogate {
namespace {

constexpr size_t kMaxRequestIdBytes = 256;
constexpr uint32_t kOpenFlags = ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_LIMITS_BEST_EFFORT |
                                ISOGATE_OPEN_KNOWN | ISOGATE_OPEN_RUNNING_ONLY;
constexpr uint32_t kFileFlags = ISOGATE_FILE_APPEND | ISOGATE_FILE_DURABLE | ISOGATE_FILE_EXCLUSIVE |
                                ISOGATE_FILE_PARENTS | ISOGATE_FILE_RECURSIVE | ISOGATE_FILE_MODE_GIVEN |
                                ISOGATE_FILE_REPLACE;

bool has_nul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

// The first check that failed, or nothing.
Result<void> all(std::initializer_list<Result<void>> checks) {
  for (const Result<void>& each : checks)
    if (!each) return each;
  return {};
}

Result<void> sandbox_id_fits(std::string_view id) {
  if (is_sandbox_id(id)) return {};
  return invalid("the sandbox_id of a record is not of the form isg-[a-z2-7]{26}");
}

Result<void> agent_id_fits(std::string_view id) {
  if (is_name(id, "_-")) return {};
  return invalid("the agent_id of a record is not of the form [A-Za-z0-9][A-Za-z0-9_-]{0,62}");
}

Result<void> exec_id_fits(std::string_view id) {
  if (id.size() == 32 && id.find_first_not_of("0123456789abcdef") == id.npos) return {};
  return invalid("the exec_id of a record is not 32 hex digits");
}

Result<void> text_fits(std::string_view text, const char* field) {
  if (!has_nul(text)) return {};
  return invalid(std::string("`") + field + "` has a NUL byte in it");
}

Result<void> flags_known(uint32_t flags, uint32_t known) {
  if ((flags & ~known) == 0) return {};
  return invalid("a record has flags that this version does not know");
}

Result<void> user_admitted(const std::string& user, const BackendConfig& settings) {
  if (user.empty()) return {};
  if (std::find(settings.users.begin(), settings.users.end(), user) != settings.users.end()) return {};
  return denied("user " + quote_path(user) + " is not admitted: add it to the backend's `users`");
}

// An existing sandbox may have an image that was once admitted.
Result<void> image_fits(const ipc::OpenCall& call, const BackendConfig& settings) {
  if (call.image.empty()) return {};
  if (!is_image_name(call.image)) return invalid("`image` is not the name of an image");
  const bool there = (call.flags & (ISOGATE_OPEN_ATTACH_ONLY | ISOGATE_OPEN_RUNNING_ONLY)) != 0;
  if (there || image_admitted(settings.images, call.image)) return {};
  return denied("image `" + call.image + "` is not admitted: add it to the backend's `images`");
}

// An absolute path leaves the workspace, unless it begins with the workspace's own name.
Result<void> path_stays(const std::string& path, uint32_t scope, const char* field) {
  if (auto fits = text_fits(path, field); !fits) return fits;
  bool absolute = !path.empty() && path[0] == '/';
  if (scope == ISOGATE_SCOPE_SANDBOX) {
    if (absolute) return {};
    return invalid(std::string("`") + field + "` must be absolute with `scope: sandbox`");
  }
  if (!absolute || path == "/workspace" || path.starts_with("/workspace/")) return {};
  return denied(std::string("`") + field + "` is absolute and not below /workspace; with `scope: sandbox` " +
                "(--scope sandbox) it is a path of the sandbox's own file system");
}

Result<void> kind_of_event(int fd, bool required, const char* field, bool may_be_mark = false) {
  if (fd < 0 && !required) return {};
  if (fd < 0) return invalid(std::string("a record has no descriptor for `") + field + "`");
  struct stat info {};
  // A mark is a socket, which this host never signals.
  const bool is_mark = may_be_mark && ::fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode);
  if (is_mark || is_event(fd)) return {};
  return invalid(std::string("the ") + field + " descriptor of a record is not an event");
}

enum class Direction { kRead, kWrite };

Result<void> kind_of_stream(int fd, Direction direction, bool required, const char* field) {
  if (fd < 0 && !required) return {};
  if (fd < 0) return invalid(std::string("a record has no descriptor for `") + field + "`");
  struct stat info {};
  if (::fstat(fd, &info) != 0) return os_error("cannot look at a descriptor", errno);
  int access = ::fcntl(fd, F_GETFL) & O_ACCMODE;
  bool stream = S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode) || S_ISREG(info.st_mode);
  bool way = access == O_RDWR || access == (direction == Direction::kRead ? O_RDONLY : O_WRONLY);
  if (stream && way) return {};
  return invalid(std::string("the descriptor for `") + field + "` of a record is of the wrong kind");
}

// A pipe cannot end only one direction, and a socket of another family may lead elsewhere.
Result<void> kind_of_socket(int fd, const char* field) {
  int type = 0, domain = 0;
  socklen_t size = sizeof type;
  if (::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM &&
      ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX)
    return {};
  return invalid(std::string("the descriptor for `") + field + "` of a record is not a Unix stream socket");
}

Result<void> header_fits(const ipc::CallHeader& header) {
  if (header.request_id.size() > kMaxRequestIdBytes) return invalid("the request_id of a record is too long");
  if (auto fits = text_fits(header.request_id, "request_id"); !fits) return fits;
  return kind_of_event(header.cancel.get(), false, "cancel");
}

Result<void> keep_fits(const ipc::ExecCall& call) {
  if (call.keep == ipc::Keep::kNot)
    return call.detach || call.input_end || call.state
               ? invalid("a record has descriptors of an exec that is kept, and keeps none")
               : Result<void>();
  const bool starts = call.keep == ipc::Keep::kStart;
  if (starts && call.grace_sec == 0) return invalid("a record keeps an exec for no time");
  if (starts && call.state) return invalid("a record has a `state` that its exec does not use");
  return all({kind_of_event(call.detach.get(), true, "detach"),
              kind_of_event(call.input_end.get(), true, "input_end", true),
              kind_of_stream(call.state.get(), Direction::kWrite, !starts, "state")});
}

Result<void> argv_fits(const std::vector<std::string>& argv) {
  if (argv.empty() || argv[0].empty()) return invalid("`argv` is empty");
  if (std::any_of(argv.begin(), argv.end(), has_nul)) return invalid("an argument has a NUL byte in it");
  return {};
}

Result<void> env_fits(const std::vector<std::pair<std::string, std::string>>& env) {
  for (const auto& [key, value] : env) {
    if (key.empty() || key.find('=') != std::string::npos || has_nul(key))
      return invalid("`env` has a name that is empty or has `=` or a NUL byte in it");
    if (has_nul(value)) return invalid("`env` has a value with a NUL byte in it");
  }
  return {};
}

Result<void> body_fits(const ipc::FileCall& call) {
  using ipc::FileVerb;
  bool reads = call.verb == FileVerb::kWrite;
  bool writes = call.verb == FileVerb::kRead || call.verb == FileVerb::kList || call.verb == FileVerb::kWatch;
  if (!reads && call.complete) return invalid("a record has a `complete` that its verb does not use");
  if (!reads && !writes)
    return call.body ? invalid("a record has a body that its verb does not use") : Result<void>();
  return all({kind_of_stream(call.body.get(), reads ? Direction::kRead : Direction::kWrite, true, "body"),
              kind_of_event(call.complete.get(), reads, "complete", true)});
}

Result<void> call_fits(const ipc::ProbeCall&, const BackendConfig&) { return {}; }

Result<void> call_fits(const ipc::PingCall&, const BackendConfig&) { return {}; }

Result<void> call_fits(const ipc::OpenCall& call, const BackendConfig& settings) {
  if ((call.flags & ISOGATE_OPEN_LIMITS_BEST_EFFORT) != 0 && !settings.limits_best_effort)
    return denied(
        "limits are enforced or the sandbox is refused: `limits.mode: best_effort` is not configured");
  return all({sandbox_id_fits(call.sandbox_id), agent_id_fits(call.agent_id),
              text_fits(call.tenant, "tenant"), text_fits(call.handle, "handle"), image_fits(call, settings),
              flags_known(call.flags, kOpenFlags)});
}

Result<void> call_fits(const ipc::CloseCall& call, const BackendConfig&) {
  if (call.mode > ISOGATE_CLOSE_PURGE) return invalid("a record has an unknown mode of closing");
  return sandbox_id_fits(call.sandbox_id);
}

Result<void> call_fits(const ipc::EnumerateCall& call, const BackendConfig&) {
  return kind_of_stream(call.out.get(), Direction::kWrite, true, "out");
}

Result<void> call_fits(const ipc::OrphansCall& call, const BackendConfig&) {
  if (call.sandbox_id.empty()) return kind_of_stream(call.out.get(), Direction::kWrite, true, "out");
  return all({sandbox_id_fits(call.sandbox_id), flags_known(call.flags, ISOGATE_ORPHANS_RUNNING)});
}

Result<void> call_fits(const ipc::ExecCall& call, const BackendConfig& settings) {
  if ((call.flags & ISOGATE_EXEC_LIMITS_SAMPLED) != 0 && !settings.exec_limits_sampled)
    return denied("limits are enforced or the exec is refused: `limits.exec: sampled` is not configured");
  return all(
      {sandbox_id_fits(call.sandbox_id), exec_id_fits(call.exec_id), user_admitted(call.user, settings),
       flags_known(call.flags, ISOGATE_EXEC_PTY | ISOGATE_EXEC_LIMITS_SAMPLED | ISOGATE_EXEC_MERGE_STDERR),
       text_fits(call.cwd, "cwd"), call.keep == ipc::Keep::kRejoin ? Result<void>() : argv_fits(call.argv),
       env_fits(call.env), keep_fits(call),
       kind_of_stream(call.std_in.get(), Direction::kRead, false, "stdin"),
       kind_of_stream(call.std_out.get(), Direction::kWrite, false, "stdout"),
       kind_of_stream(call.std_err.get(), Direction::kWrite, false, "stderr"),
       kind_of_stream(call.control.get(), Direction::kRead, false, "control")});
}

Result<void> call_fits(const ipc::FileCall& call, const BackendConfig& settings) {
  if (call.scope > ISOGATE_SCOPE_SANDBOX) return invalid("a record has an unknown scope");
  if (call.mode > 0777) return invalid("`mode` has more than permission bits (0777)");
  bool moves = call.verb == ipc::FileVerb::kMove;
  if (moves == call.path_to.empty())
    return invalid("a record has a second path that its verb does not take, or lacks one");
  return all({sandbox_id_fits(call.sandbox_id), user_admitted(call.user, settings),
              flags_known(call.flags, kFileFlags), path_stays(call.path, call.scope, "path"),
              moves ? path_stays(call.path_to, call.scope, "path_to") : Result<void>(), body_fits(call)});
}

Result<void> call_fits(const ipc::EvidenceCall& call, const BackendConfig&) {
  if (call.gateway_port > 65535) return invalid("a record has a port above 65535");
  return all({sandbox_id_fits(call.sandbox_id), text_fits(call.gateway_address, "gateway_address"),
              text_fits(call.gateway_listeners, "gateway_listeners")});
}

Result<void> call_fits(const ipc::ConnectCall& call, const BackendConfig&) {
  if (call.port == 0 || call.port > 65535) return invalid("a record has a port that is not 1 to 65535");
  return all({sandbox_id_fits(call.sandbox_id), kind_of_socket(call.stream.get(), "stream"),
              kind_of_event(call.ready.get(), true, "ready")});
}

}  // namespace

// Such a descriptor is an anonymous inode: no type at all.
bool is_event(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && (info.st_mode & S_IFMT) == 0;
}

Result<void> check(const ipc::Call& call, const BackendConfig& settings) {
  return std::visit(
      [&settings](const auto& one) {
        if (auto checked = header_fits(one.call); !checked) return checked;
        return call_fits(one, settings);
      },
      call);
}

Result<uint32_t> admitted_egress(uint32_t asked, uint32_t configured) {
  if (asked > ISOGATE_EGRESS_ALLOW) return invalid("a record has an unknown egress");
  if (asked == ISOGATE_EGRESS_UNSET || asked == configured) return configured;
  // deny < proxy < allow; if unset, it is the backend's own, and only `deny` is certainly not above that.
  if (asked == ISOGATE_EGRESS_DENY || (configured != ISOGATE_EGRESS_UNSET && asked < configured))
    return asked;
  return denied("a record asks for more egress than the backend's configuration gives");
}

}  // namespace isogate
