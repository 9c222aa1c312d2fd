#include "requests.h"

namespace isogate::sdk::link {
namespace {

constexpr uint32_t kFileFlags = ISOGATE_FILE_APPEND | ISOGATE_FILE_DURABLE | ISOGATE_FILE_EXCLUSIVE |
                                ISOGATE_FILE_PARENTS | ISOGATE_FILE_RECURSIVE | ISOGATE_FILE_MODE_GIVEN;
constexpr uint32_t kStreamFlags[] = {ISOGATE_RUNNER_EXEC_STDIN, ISOGATE_RUNNER_EXEC_STDOUT,
                                     ISOGATE_RUNNER_EXEC_STDERR};

[[noreturn]] void invalid(const std::string& why) { throw Error(ISOGATE_INVALID_ARGUMENT, why); }

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

void check_limits(const isogate_limits& limits) {
  const char* asked = limits.memory_bytes != 0 ? "the memory"
                      : limits.cpu_millis != 0 ? "the CPU"
                      : limits.pids != 0       ? "the processes"
                      : limits.disk_bytes != 0 ? "the disk space"
                                               : nullptr;
  if (asked != nullptr)
    throw Error(ISOGATE_UNSUPPORTED, std::string("this backend cannot limit ") + asked + " of a single exec");
}

}  // namespace

void check(const isogate_exec_request& request, bool has_pty) {
  if ((request.flags & ~ISOGATE_EXEC_PTY) != 0 || request.reserved != 0)
    invalid("the request has unknown flags");
  if (request.argc == 0) invalid("argv is empty");
  check_limits(request.limits);
  if ((request.flags & ISOGATE_EXEC_PTY) != 0 && !has_pty)
    throw Error(ISOGATE_UNSUPPORTED, "the runner of this sandbox cannot give a terminal");
  Room room(ISOGATE_RUNNER_MAX_REQUEST - sizeof(isogate_runner_exec),
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

std::array<int, 3> streams_of(const isogate_exec_request& request) {
  const bool pty = (request.flags & ISOGATE_EXEC_PTY) != 0;
  return {request.stdin_fd, request.stdout_fd, pty ? -1 : request.stderr_fd};
}

void append(std::string& out, uint32_t stream, uint16_t frame_flags, const isogate_exec_request& request) {
  isogate_runner_exec head{};
  if ((request.flags & ISOGATE_EXEC_PTY) != 0) head.flags |= ISOGATE_RUNNER_EXEC_PTY;
  const std::array<int, 3> streams = streams_of(request);
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i] >= 0) head.flags |= kStreamFlags[i];
  head.argc = static_cast<uint32_t>(request.argc);
  head.envc = static_cast<uint32_t>(request.envc);
  head.rows = request.rows;
  head.cols = request.cols;
  FrameWriter frame(out, ISOGATE_RUNNER_EXEC, stream, frame_flags);
  frame.add(head).text(view(request.cwd)).text(view(request.user));
  for (uint64_t i = 0; i < request.argc; ++i) frame.text(view(request.argv[i]));
  for (uint64_t i = 0; i < request.envc; ++i)
    frame.text(view(request.env[i].key)).text(view(request.env[i].value));
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

void append(std::string& out, uint32_t stream, const isogate_evidence_request& request, bool listeners) {
  FrameWriter frame(out, ISOGATE_RUNNER_EVIDENCE, stream);
  frame.add(isogate_runner_measure{request.gateway_port, 0}).text(view(request.gateway_address));
  if (listeners) frame.text(view(request.gateway_listeners));
}

}  // namespace isogate::sdk::link
