#include "requests.h"

namespace isogate::sdk::link {
namespace {

constexpr uint32_t kFileFlags = ISOGATE_FILE_APPEND | ISOGATE_FILE_DURABLE | ISOGATE_FILE_EXCLUSIVE |
                                ISOGATE_FILE_PARENTS | ISOGATE_FILE_RECURSIVE | ISOGATE_FILE_MODE_GIVEN |
                                ISOGATE_FILE_REPLACE;

[[noreturn]] void invalid(const std::string& why) { throw Error(ISOGATE_INVALID_ARGUMENT, why); }

class Strings {
 public:
  explicit Strings(std::string_view bytes) : bytes_(bytes) {}
  std::string next() {
    uint32_t length = 0;
    if (!take(bytes_, length) || length > bytes_.size()) return fail();
    std::string text(bytes_.substr(0, length));
    bytes_.remove_prefix(length);
    return text;
  }
  [[nodiscard]] bool good() const { return good_; }
  [[nodiscard]] bool complete() const { return good_ && bytes_.empty(); }

 private:
  std::string fail() {
    good_ = false;
    bytes_ = {};
    return {};
  }
  std::string_view bytes_;
  bool good_ = true;
};

constexpr uint32_t kExecFlags = ISOGATE_RUNNER_EXEC_PTY | ISOGATE_RUNNER_EXEC_STDIN |
                                ISOGATE_RUNNER_EXEC_STDOUT | ISOGATE_RUNNER_EXEC_STDERR |
                                ISOGATE_RUNNER_EXEC_LIMITS | ISOGATE_RUNNER_EXEC_MERGE_STDERR |
                                ISOGATE_RUNNER_EXEC_KEEP;
constexpr uint32_t kRequestFlags = ISOGATE_EXEC_PTY | ISOGATE_EXEC_LIMITS_SAMPLED | ISOGATE_EXEC_MERGE_STDERR;

bool parse_limits(std::string_view& payload, ExecOrder& order) {
  isogate_runner_limits head{};
  if (!take(payload, head) || head.sampled > 1) return false;
  if (head.count > payload.size() / sizeof(isogate_runner_limit)) return false;
  order.limits_sampled = head.sampled == 1;
  for (uint32_t i = 0; i < head.count; ++i) {
    isogate_runner_limit limit{};
    if (!take(payload, limit) || limit.reserved != 0) return false;
    order.limits.push_back({limit.id, 0, limit.value});
  }
  return true;
}

// Adds up what strings take in a frame.
class Room {
 public:
  Room(size_t room, const char* too_long) : left_(room), too_long_(too_long) {}
  void add(const char* what, isogate_str text) {
    if (text.len > left_ || left_ - text.len < sizeof(uint32_t)) invalid(too_long_);
    left_ -= text.len + sizeof(uint32_t);
    if (view(text).find('\0') != std::string_view::npos) invalid(std::string(what) + " holds a NUL");
  }

 private:
  uint64_t left_;
  const char* too_long_;
};

// False: it is not 32 lower-case hex digits.
bool read_id(std::string_view digits, uint8_t (&id)[16]) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  if (digits.size() != 2 * sizeof id) return false;
  for (size_t i = 0; i < sizeof id; ++i) {
    const size_t high = kDigits.find(digits[2 * i]), low = kDigits.find(digits[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    id[i] = static_cast<uint8_t>(high << 4 | low);
  }
  return true;
}

uint32_t stream_flags(const isogate_exec_request& request) {
  const auto [in, out, err] = streams_of(request);
  return (in >= 0 ? ISOGATE_RUNNER_EXEC_STDIN : 0) | (out >= 0 ? ISOGATE_RUNNER_EXEC_STDOUT : 0) |
         (err >= 0 ? ISOGATE_RUNNER_EXEC_STDERR : 0);
}

constexpr uint64_t kMostLimits = 256;

// What the runner cannot enforce it refuses itself.
void check_limits(const isogate_exec_request& request) {
  if (request.limit_count > kMostLimits) invalid("there are too many limits");
  check_well_formed(limits_of(request));
}

}  // namespace

void check(const isogate_exec_request& request, bool has_pty) {
  if ((request.flags & ~kRequestFlags) != 0 || request.reserved != 0)
    invalid("the request has unknown flags");
  if (request.argc == 0) invalid("argv is empty");
  check_limits(request);
  if ((request.flags & ISOGATE_EXEC_PTY) != 0 && !has_pty)
    throw Error(ISOGATE_UNSUPPORTED, "the runner of this sandbox cannot give a terminal");
  Room room(ISOGATE_RUNNER_MAX_REQUEST - sizeof(isogate_runner_exec) - sizeof(isogate_runner_limits) -
                kMostLimits * sizeof(isogate_runner_limit) - sizeof(isogate_runner_keep),
            "the arguments and the environment are too long (4 MiB in all)");
  room.add("cwd", request.cwd);
  room.add("user", request.user);
  for (uint64_t i = 0; i < request.argc; ++i) room.add("an argument", request.argv[i]);
  for (uint64_t i = 0; i < request.envc; ++i) {
    room.add("a variable", request.env[i].key);
    room.add("a variable", request.env[i].value);
  }
}

void check(const isogate_file_request& request) {
  if ((request.flags & ~kFileFlags) != 0) invalid("the request has unknown flags");
  if (request.scope > ISOGATE_SCOPE_SANDBOX) invalid("the request has an unknown scope");
  if (request.mode > 0777) invalid("the mode has more than permission bits");
  Room room(ISOGATE_RUNNER_MAX_FRAME - sizeof(isogate_runner_file), "the path is too long");
  room.add("the path", request.path);
  room.add("the path", request.path_to);
  room.add("the user", request.user);
}

void check(const isogate_evidence_request& request) {
  if (request.gateway_port > UINT16_MAX) invalid("the gateway's port is none");
  if (request.gateway_address.len > 64) invalid("the gateway's address is too long");
  if (request.gateway_listeners.len > ISOGATE_RUNNER_MAX_FRAME / 2)
    invalid("the gateway has too many listeners");
}

void check(const isogate_connect_request& request) {
  if (request.flags != 0 || request.reserved != 0) invalid("the request has unknown flags");
  if (request.port == 0 || request.port > UINT16_MAX) invalid("the port must be 1 to 65535");
}

void check(const isogate_exec_request& request, const isogate_kept_exec& kept, bool starts) {
  if (starts && kept.grace_sec == 0) invalid("an exec is kept for no time");
  uint8_t id[16];
  if (!read_id(view(request.exec_id), id)) invalid("the exec_id is not 32 hex digits");
}

std::array<int, 3> streams_of(const isogate_exec_request& request) {
  const bool one = (request.flags & (ISOGATE_EXEC_PTY | ISOGATE_EXEC_MERGE_STDERR)) != 0;
  return {request.stdin_fd, request.stdout_fd, one ? -1 : request.stderr_fd};
}

void append(std::string& out, uint32_t stream, uint16_t frame_flags, const isogate_exec_request& request,
            const isogate_kept_exec* kept) {
  isogate_runner_exec head{};
  if (kept != nullptr) head.flags |= ISOGATE_RUNNER_EXEC_KEEP;
  if ((request.flags & ISOGATE_EXEC_PTY) != 0) head.flags |= ISOGATE_RUNNER_EXEC_PTY;
  if ((request.flags & ISOGATE_EXEC_MERGE_STDERR) != 0) head.flags |= ISOGATE_RUNNER_EXEC_MERGE_STDERR;
  head.flags |= stream_flags(request);
  if (request.limit_count != 0) head.flags |= ISOGATE_RUNNER_EXEC_LIMITS;
  head.argc = static_cast<uint32_t>(request.argc);
  head.envc = static_cast<uint32_t>(request.envc);
  head.rows = request.rows;
  head.cols = request.cols;
  FrameWriter frame(out, ISOGATE_RUNNER_EXEC, stream, frame_flags);
  frame.add(head);
  if (request.limit_count != 0) {
    const uint32_t sampled = (request.flags & ISOGATE_EXEC_LIMITS_SAMPLED) != 0 ? 1 : 0;
    frame.add(isogate_runner_limits{static_cast<uint32_t>(request.limit_count), sampled});
    for (const isogate_limit& limit : limits_of(request))
      frame.add(isogate_runner_limit{limit.id, 0, limit.value});
  }
  if (kept != nullptr) {
    isogate_runner_keep keep{};
    read_id(view(request.exec_id), keep.id);
    keep.grace_sec = kept->grace_sec;
    frame.add(keep);
  }
  frame.text(view(request.cwd)).text(view(request.user));
  for (uint64_t i = 0; i < request.argc; ++i) frame.text(view(request.argv[i]));
  for (uint64_t i = 0; i < request.envc; ++i)
    frame.text(view(request.env[i].key)).text(view(request.env[i].value));
}

void append_rejoin(std::string& out, uint32_t stream, const isogate_exec_request& request) {
  isogate_runner_rejoin head{};
  read_id(view(request.exec_id), head.id);
  head.flags = stream_flags(request);
  FrameWriter(out, ISOGATE_RUNNER_REJOIN, stream).add(head);
}

void append(std::string& out, uint32_t stream, uint16_t frame_flags, uint32_t verb,
            const isogate_file_request& request) {
  const isogate_runner_file head{
      verb, request.scope, request.flags, request.mode, request.offset, request.limit, 0};
  FrameWriter(out, ISOGATE_RUNNER_FILE, stream, frame_flags)
      .add(head)
      .text(view(request.path))
      .text(view(request.path_to))
      .text(view(request.user));
}

void append(std::string& out, uint32_t stream, const isogate_evidence_request& request) {
  FrameWriter(out, ISOGATE_RUNNER_EVIDENCE, stream)
      .add(isogate_runner_measure{request.gateway_port, 0})
      .text(view(request.gateway_address))
      .text(view(request.gateway_listeners));
}

bool parse(std::string_view payload, ExecOrder& order) {
  if (!take(payload, order.head) || (order.head.flags & ~kExecFlags) != 0) return false;
  if ((order.head.flags & ISOGATE_RUNNER_EXEC_LIMITS) != 0 && !parse_limits(payload, order)) return false;
  const bool merged = (order.head.flags & ISOGATE_RUNNER_EXEC_MERGE_STDERR) != 0;
  if (merged && (order.head.flags & ISOGATE_RUNNER_EXEC_STDERR) != 0) return false;
  if ((order.head.flags & ISOGATE_RUNNER_EXEC_KEEP) != 0 &&
      (!take(payload, order.keep) || order.keep.grace_sec == 0 || order.keep.reserved != 0))
    return false;
  Strings strings(payload);
  order.cwd = strings.next();
  order.user = strings.next();
  order.too_many = uint64_t{order.head.argc} + 2 * uint64_t{order.head.envc} > kMaxStrings;
  if (order.too_many) return strings.good();
  for (uint32_t i = 0; i < order.head.argc && strings.good(); ++i) order.argv.push_back(strings.next());
  for (uint32_t i = 0; i < order.head.envc && strings.good(); ++i) {
    std::string key = strings.next();
    order.env.emplace_back(std::move(key), strings.next());
  }
  return strings.complete();
}

bool parse(std::string_view payload, FileOrder& order) {
  if (!take(payload, order.head)) return false;
  Strings strings(payload);
  order.path = strings.next();
  order.path_to = strings.next();
  order.user = strings.next();
  return strings.complete() && order.head.verb >= ISOGATE_RUNNER_READ &&
         order.head.verb <= ISOGATE_RUNNER_WATCH;
}

bool parse(std::string_view payload, MeasureOrder& order) {
  if (!take(payload, order.head)) return false;
  Strings strings(payload);
  order.gateway_address = strings.next();
  order.listeners = strings.next();
  return strings.complete() && order.head.gateway_port <= 0xffff;
}

std::optional<isogate_runner_rejoin> parse_rejoin(std::string_view payload) {
  isogate_runner_rejoin head{};
  constexpr uint32_t kStreams =
      ISOGATE_RUNNER_EXEC_STDIN | ISOGATE_RUNNER_EXEC_STDOUT | ISOGATE_RUNNER_EXEC_STDERR;
  if (!take(payload, head) || !payload.empty() || (head.flags & ~kStreams) != 0 || head.reserved != 0)
    return std::nullopt;
  return head;
}

std::optional<uint16_t> parse_connect(std::string_view payload) {
  isogate_runner_connect head{};
  if (!take(payload, head) || !payload.empty() || head.reserved != 0) return std::nullopt;
  if (head.port == 0 || head.port > UINT16_MAX) return std::nullopt;
  return static_cast<uint16_t>(head.port);
}

}  // namespace isogate::sdk::link
