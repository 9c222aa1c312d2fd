#include "link.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "requests.h"
#include "talk.h"

namespace isogate::sdk {
namespace link {
namespace {

constexpr uint64_t kEvidence = ISOGATE_EVIDENCE_MEASURED | ISOGATE_EVIDENCE_NETWORK |
                               ISOGATE_EVIDENCE_REACHED_GATEWAY | ISOGATE_EVIDENCE_REACHED_METADATA;

bool is_pipe(int fd) {
  struct stat info {};
  return ::fstat(fd, &info) == 0 && S_ISFIFO(info.st_mode);
}

// A pipe has no name, so that who may open it is whoever may look into a process that holds it.
void give_pipe(int fd, int64_t user) {
  struct stat info {};
  if (user < 0 || ::fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode) || info.st_uid == user) return;
  if (::fchown(fd, static_cast<uid_t>(user), static_cast<gid_t>(-1)) == 0) return;
  [[maybe_unused]] const int opened = ::fchmod(fd, 0666);
}

uint64_t number(uint64_t from_runner) { return std::min<uint64_t>(from_runner, INT64_MAX); }

class Link final : public RunnerLink {
 public:
  Link(std::unique_ptr<RunnerStream> stream, Patience patience)
      : user_(stream->user()), connection_(std::move(stream), patience) {}

  void greet(const Bound& bound) {
    isogate_runner_hello hello{};
    connection_.greet(bound, hello);
    passes_ = connection_.carries_descriptors() && (hello.flags & ISOGATE_RUNNER_HAS_DESCRIPTORS) != 0;
    minor_ = std::min(hello.minor, static_cast<uint16_t>(ISOGATE_RUNNER_MINOR));
    peer_.pid = hello.pid;
    peer_.uid = hello.uid;
    peer_.is_init = (hello.flags & ISOGATE_RUNNER_IS_INIT) != 0;
    peer_.has_pty = (hello.flags & ISOGATE_RUNNER_HAS_PTY) != 0;
    peer_.build = clean({hello.build, ::strnlen(hello.build, sizeof hello.build)});
  }

  void exec(const Call& call, const isogate_exec_request& request, isogate_exec_result& result) override;
  void read(const Call& call, const isogate_file_request& request, isogate_entry& entry) override;
  uint64_t write(const Call& call, const isogate_file_request& request) override;
  void list(const Call& call, const isogate_file_request& request, const EntrySink& sink) override;
  void stat(const Call& call, const isogate_file_request& request, isogate_entry& entry) override;
  void mkdir(const Call& call, const isogate_file_request& request) override {
    change(call, ISOGATE_RUNNER_MKDIR, request);
  }
  void move(const Call& call, const isogate_file_request& request) override {
    change(call, ISOGATE_RUNNER_MOVE, request);
  }
  void remove(const Call& call, const isogate_file_request& request) override {
    change(call, ISOGATE_RUNNER_REMOVE, request);
  }
  void evidence(const Call& call, const isogate_evidence_request& request, isogate_evidence& out) override;

  bool ping(std::chrono::milliseconds patience) override { return connection_.ping(Clock::now() + patience); }
  bool prove(std::chrono::milliseconds patience) override;
  [[nodiscard]] bool spent() const override { return spent_; }
  [[nodiscard]] const Peer& peer() const override { return peer_; }
  [[nodiscard]] bool alive() const override { return connection_.is_there(); }
  [[nodiscard]] std::string why() const override { return connection_.why(); }
  void close(const std::string& why) override { connection_.fail(why); }

 private:
  [[noreturn]] void refuse(const char* why) {
    connection_.fail(std::string("the runner cannot be believed: ") + why);
    throw Error(ISOGATE_IO, std::string("the runner cannot be believed: ") + why);
  }

  const isogate_runner_result& run_file(Talk& talk, uint32_t verb, const isogate_file_request& request,
                                        int passed_fd) {
    const uint16_t flags = passed_fd >= 0 ? ISOGATE_RUNNER_WITH_DESCRIPTORS : 0;
    const std::span<const int> fds(&passed_fd, passed_fd >= 0 ? 1 : 0);
    return talk.run(fds,
                    [&](std::string& out, uint32_t stream) { append(out, stream, flags, verb, request); });
  }

  void change(const Call& call, uint32_t verb, const isogate_file_request& request) {
    check(request);
    Talk talk(connection_, call, {.kind = Kind::kChanges});
    run_file(talk, verb, request, -1);
  }

  void take_entry(const isogate_runner_result& from, isogate_entry& to);

  const int64_t user_;  // of programs; -1: not known
  mutable Connection connection_;
  isogate_runner_result run_exec(Talk& talk, const isogate_exec_request& request,
                                 std::span<const int> passed);

  bool passes_ = false;
  uint16_t minor_ = 0;
  std::atomic<bool> spent_{false};
  Peer peer_;
};

isogate_runner_result Link::run_exec(Talk& talk, const isogate_exec_request& request,
                                     std::span<const int> passed) {
  const uint16_t flags = passed.empty() ? 0 : ISOGATE_RUNNER_WITH_DESCRIPTORS;
  try {
    return talk.run(passed, [&](std::string& out, uint32_t stream) { append(out, stream, flags, request); });
  } catch (const Error& error) {
    const bool lost = error.status() == ISOGATE_LOST && !talk.was_answered();
    if (lost || (talk.said().exec_flags & ISOGATE_RESULT_LEFT_BEHIND) != 0) spent_ = true;
    throw;
  }
}

bool Link::prove(std::chrono::milliseconds patience) {
  if (minor_ < 1) return false;
  const isogate_call nobody{sizeof(isogate_call), -1, INT64_MAX, {}};
  const Call call(nobody);
  Talk talk(connection_, call, {.kind = Kind::kReads, .until = Clock::now() + patience});
  try {
    talk.run({}, [](std::string& out, uint32_t stream) { FrameWriter(out, ISOGATE_RUNNER_PROVE, stream); });
  } catch (const Error&) {
    return false;
  }
  return true;
}

void Link::exec(const Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  check(request, peer_.has_pty);
  const std::array<int, 3> streams = streams_of(request);
  std::array<int, 3> passed{};
  size_t count = 0;
  for (const int fd : streams)
    if (passes_ && fd >= 0) passed[count++] = fd;
  for (size_t i = 0; i < count; ++i) give_pipe(passed[i], user_);
  Plan plan{.kind = Kind::kRuns, .control_fd = request.control_fd};
  if (!passes_) {
    plan.feed_fd = streams[0];
    plan.out_fds = {streams[1], streams[2]};
  }
  Talk talk(connection_, call, plan);
  const isogate_runner_result said = run_exec(talk, request, {passed.data(), count});
  if (said.exit_code < 0 || said.exit_code > 255 || said.term_signal < 0 || said.term_signal > 64) {
    spent_ = true;
    connection_.fail("the runner told an end that no program has");
    throw Error(ISOGATE_LOST, "the runner told an end that no program has");
  }
  if ((said.exec_flags & ISOGATE_RESULT_LEFT_BEHIND) != 0) spent_ = true;
  result.flags =
      said.exec_flags & (ISOGATE_RESULT_OOM_KILLED | ISOGATE_RESULT_NOT_STARTED | ISOGATE_RESULT_LEFT_BEHIND);
  if (talk.was_cut() || (talk.was_cancelled() && (said.exec_flags & ISOGATE_RESULT_KILLED) != 0))
    result.flags |= ISOGATE_RESULT_KILLED;
  result.exit_code = said.exit_code;
  result.term_signal = said.term_signal;
  result.os_errno = said.os_errno > 0 && said.os_errno < 4096 ? said.os_errno : 0;
  result.wall_ns = number(said.wall_ns);
  result.cpu_ns = number(said.cpu_ns);
  result.max_rss_bytes = number(said.max_rss_bytes);
}

void Link::read(const Call& call, const isogate_file_request& request, isogate_entry& entry) {
  check(request);
  Plan plan{.kind = Kind::kReads, .most_bytes = request.limit, .ends_with_reader = !passes_};
  if (!passes_) plan.out_fds[0] = request.fd;
  Talk talk(connection_, call, plan);
  const auto& said = run_file(talk, ISOGATE_RUNNER_READ, request, passes_ ? request.fd : -1);
  isogate_runner_result found = said;
  const bool has_no_size = minor_ >= 2 && found.entry_size == ISOGATE_SIZE_UNKNOWN;
  if (has_no_size) found.entry_size = 0;
  take_entry(found, entry);
  if (entry.type != ISOGATE_ENTRY_REGULAR) refuse("it read what is no file");
  if (has_no_size) {
    entry.size = ISOGATE_SIZE_UNKNOWN;
    return;
  }
  const uint64_t left = entry.size - std::min(entry.size, request.offset);
  if (!passes_ && talk.received() != std::min(left, request.limit))
    throw Error(ISOGATE_IO, "the file's bytes did not come whole");
}

uint64_t Link::write(const Call& call, const isogate_file_request& request) {
  check(request);
  // The end of a pipe's writer can be seen without reading it; of anything else only by reading.
  const bool passes = passes_ && (request.complete_fd <= 0 || is_pipe(request.fd));
  Plan plan{.kind = Kind::kChanges, .has_body = true, .complete_fd = request.complete_fd};
  (passes ? plan.body_fd : plan.feed_fd) = request.fd;
  Talk talk(connection_, call, plan);
  const auto& said = run_file(talk, ISOGATE_RUNNER_WRITE, request, passes ? request.fd : -1);
  if (!passes && said.written != talk.sent()) refuse("it wrote another number of bytes than it got");
  return number(said.written);
}

void Link::list(const Call& call, const isogate_file_request& request, const EntrySink& sink) {
  check(request);
  Plan plan{.kind = Kind::kReads, .entries = &sink};
  if (request.limit != 0) plan.most_entries = request.limit;
  Talk talk(connection_, call, plan);
  run_file(talk, ISOGATE_RUNNER_LIST, request, -1);
}

void Link::stat(const Call& call, const isogate_file_request& request, isogate_entry& entry) {
  check(request);
  Talk talk(connection_, call, {.kind = Kind::kReads});
  take_entry(run_file(talk, ISOGATE_RUNNER_STAT, request, -1), entry);
}

void Link::take_entry(const isogate_runner_result& from, isogate_entry& to) {
  if (from.entry_type < ISOGATE_ENTRY_REGULAR || from.entry_type > ISOGATE_ENTRY_OTHER)
    refuse("an entry of an unknown type");
  if (from.entry_size > INT64_MAX) refuse("an entry of an impossible size");
  to.type = from.entry_type;
  to.mode = from.entry_mode & 07777;
  to.size = from.entry_size;
  to.mtime_ns = from.entry_mtime_ns;
  to.name = {};
}

void Link::evidence(const Call& call, const isogate_evidence_request& request, isogate_evidence& out) {
  check(request);
  Talk talk(connection_, call, {.kind = Kind::kReads});
  const bool all = minor_ >= 1;
  const isogate_runner_result& said =
      talk.run({}, [&](std::string& frame, uint32_t stream) { append(frame, stream, request, all); });
  out.flags = said.evidence_flags & kEvidence;
  if (!all && request.gateway_listeners.len != 0) out.flags &= ~ISOGATE_EVIDENCE_NETWORK;
  out.uid = said.uid;
  out.gid = said.gid;
  out.no_new_privs = said.no_new_privs;
  out.seccomp_mode = said.seccomp_mode;
  out.cap_inheritable = said.cap_inheritable;
  out.cap_permitted = said.cap_permitted;
  out.cap_effective = said.cap_effective;
  out.cap_bounding = said.cap_bounding;
  out.cap_ambient = said.cap_ambient;
  out.ns_mnt = said.ns_mnt;
  out.ns_pid = said.ns_pid;
  out.ns_net = said.ns_net;
  out.ns_ipc = said.ns_ipc;
  out.ns_uts = said.ns_uts;
  out.ns_user = said.ns_user;
  out.ns_cgroup = said.ns_cgroup;
  out.visible_processes = said.visible_processes;
  out.limits = {said.limit_memory_bytes, said.limit_cpu_millis, said.limit_pids, 0};
}

}  // namespace

std::shared_ptr<RunnerLink> connect(std::unique_ptr<RunnerStream> stream, std::chrono::milliseconds patience,
                                    const Call& call, Patience calls) {
  auto link = std::make_shared<Link>(std::move(stream), calls);
  link->greet({.cancel_fd = call.cancel_fd(), .until = Clock::now() + patience});
  return link;
}

}  // namespace link

std::shared_ptr<RunnerLink> RunnerLink::connect(std::unique_ptr<RunnerStream> stream,
                                                std::chrono::milliseconds patience, const Call& call,
                                                std::chrono::milliseconds killed) {
  return link::connect(std::move(stream), patience, call, {.killed = killed});
}

}  // namespace isogate::sdk
