#include "link.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "client_call.h"
#include "descriptor.h"
#include "requests.h"

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

// Its streams go in frames.
Plan plan_of(const isogate_exec_request& request) {
  const std::array<int, 3> streams = streams_of(request);
  return {.kind = Kind::kRuns,
          .feed_fd = streams[0],
          .out_fds = {streams[1], streams[2]},
          .control_fd = request.control_fd};
}

Plan plan_of(const isogate_exec_request& request, const isogate_kept_exec& kept) {
  Plan plan = plan_of(request);
  plan.is_kept = true;
  plan.detach_fd = kept.detach_fd;
  plan.input_end_fd = kept.input_end_fd;
  return plan;
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
    peer_.pid = hello.pid;
    peer_.uid = hello.uid;
    peer_.is_init = (hello.flags & ISOGATE_RUNNER_IS_INIT) != 0;
    peer_.has_pty = (hello.flags & ISOGATE_RUNNER_HAS_PTY) != 0;
    peer_.build = clean({hello.build, ::strnlen(hello.build, sizeof hello.build)});
  }

  void exec(const Call& call, const isogate_exec_request& request, isogate_exec_result& result) override;
  void start_kept(const Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
                  isogate_exec_result& result) override;
  void rejoin(const Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
              isogate_exec_result& result) override;
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
  void disk_use(const Call& call, isogate_disk_use& out) override;
  void watch(const Call& call, const isogate_file_request& request) override;
  void connect_to_port(const Call& call, const isogate_connect_request& request) override;

  bool ping(std::chrono::milliseconds patience) override { return connection_.ping(Clock::now() + patience); }
  bool prove(std::chrono::milliseconds patience) override;
  [[nodiscard]] bool spent() const override { return spent_; }
  [[nodiscard]] const Peer& peer() const override { return peer_; }
  [[nodiscard]] bool alive() const override { return connection_.is_there(); }
  [[nodiscard]] std::string why() const override { return connection_.why(); }
  void close(const std::string& why) override { connection_.fail(why); }

 private:
  const isogate_runner_result& run_file(ClientCall& client_call, uint32_t verb,
                                        const isogate_file_request& request, int passed_fd) {
    const uint16_t flags = passed_fd >= 0 ? ISOGATE_RUNNER_WITH_DESCRIPTORS : 0;
    const std::span<const int> fds(&passed_fd, passed_fd >= 0 ? 1 : 0);
    return client_call.run(
        fds, [&](std::string& out, uint32_t stream) { append(out, stream, flags, verb, request); });
  }

  void change(const Call& call, uint32_t verb, const isogate_file_request& request) {
    check(request);
    ClientCall client_call(connection_, call, {.kind = Kind::kChanges});
    run_file(client_call, verb, request, -1);
  }

  void take_limits(std::string_view from, isogate_evidence& to);
  void take_entry(const isogate_runner_result& from, isogate_entry& to);

  const int64_t user_;  // of programs; -1: not known
  mutable Connection connection_;
  // `passed`: descriptors that go with the request. `kept`: null for exec().
  void run(const Call& call, const isogate_exec_request& request, const isogate_kept_exec* kept,
           const Plan& plan, std::span<const int> passed, isogate_exec_result& result);
  void take_end(const ClientCall& client_call, const isogate_runner_result& answer,
                isogate_exec_result& result);

  bool passes_ = false;
  std::atomic<bool> spent_{false};
  Peer peer_;
};

void Link::run(const Call& call, const isogate_exec_request& request, const isogate_kept_exec* kept,
               const Plan& plan, std::span<const int> passed, isogate_exec_result& result) {
  ClientCall client_call(connection_, call, plan);
  const auto fill = [&](std::string& out, uint32_t stream) {
    if (plan.rejoins) return append_rejoin(out, stream, request);
    const uint16_t flags = passed.empty() ? 0 : ISOGATE_RUNNER_WITH_DESCRIPTORS;
    append(out, stream, flags, request, kept);
  };
  try {
    take_end(client_call, client_call.run(passed, fill), result);
  } catch (const Error& error) {
    const bool lost =
        error.status() == ISOGATE_LOST && !client_call.was_answered() && !client_call.was_detached();
    if (lost || (client_call.result().exec_flags & ISOGATE_RESULT_LEFT_BEHIND) != 0) spent_ = true;
    throw;
  }
}

bool Link::prove(std::chrono::milliseconds patience) {
  const isogate_call nobody{sizeof(isogate_call), -1, INT64_MAX, {}};
  const Call call(nobody);
  ClientCall client_call(connection_, call, {.kind = Kind::kReads, .until = Clock::now() + patience});
  try {
    client_call.run(
        {}, [](std::string& out, uint32_t stream) { FrameWriter(out, ISOGATE_RUNNER_PROVE, stream); });
  } catch (const Error&) {
    return false;
  }
  return true;
}

void Link::exec(const Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  check(request, peer_.has_pty);
  Plan plan = plan_of(request);
  std::array<int, 3> passed{};
  size_t count = 0;
  for (int* fd : {&plan.feed_fd, &plan.out_fds[0], &plan.out_fds[1]}) {
    if (!passes_ || *fd < 0) continue;
    give_pipe(*fd, user_);
    passed[count++] = std::exchange(*fd, -1);
  }
  run(call, request, nullptr, plan, {passed.data(), count}, result);
}

// Its bytes go in frames, which the runner keeps: the program outlives every descriptor of this process.
void Link::start_kept(const Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
                      isogate_exec_result& result) {
  check(request, peer_.has_pty);
  check(request, kept, true);
  run(call, request, &kept, plan_of(request, kept), {}, result);
}

void Link::rejoin(const Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
                  isogate_exec_result& result) {
  check(request, kept, false);
  Plan plan = plan_of(request, kept);
  plan.rejoins = true;
  plan.state_fd = kept.state_fd;
  run(call, request, &kept, plan, {}, result);
}

void Link::take_end(const ClientCall& client_call, const isogate_runner_result& answer,
                    isogate_exec_result& result) {
  if (answer.exit_code < 0 || answer.exit_code > 255 || answer.term_signal < 0 || answer.term_signal > 64) {
    spent_ = true;
    connection_.fail("the runner reported an end that no program has");
    throw Error(ISOGATE_LOST, "the runner reported an end that no program has");
  }
  if ((answer.exec_flags & ISOGATE_RESULT_LEFT_BEHIND) != 0) spent_ = true;
  result.flags = answer.exec_flags & (ISOGATE_RESULT_OOM_KILLED | ISOGATE_RESULT_NOT_STARTED |
                                      ISOGATE_RESULT_LEFT_BEHIND | ISOGATE_RESULT_PIDS_EXCEEDED);
  if (client_call.was_cut() ||
      (client_call.was_cancelled() && (answer.exec_flags & ISOGATE_RESULT_KILLED) != 0))
    result.flags |= ISOGATE_RESULT_KILLED;
  result.exit_code = answer.exit_code;
  result.term_signal = answer.term_signal;
  result.os_errno = answer.os_errno > 0 && answer.os_errno < 4096 ? answer.os_errno : 0;
  result.wall_ns = number(answer.wall_ns);
  result.cpu_ns = number(answer.cpu_ns);
  result.max_rss_bytes = number(answer.max_rss_bytes);
}

void Link::read(const Call& call, const isogate_file_request& request, isogate_entry& entry) {
  check(request);
  Plan plan{.kind = Kind::kReads,
            .passes_out = passes_ && request.limit != 0,
            .most_bytes = request.limit,
            .ends_with_reader = !passes_};
  if (!passes_) plan.out_fds[0] = request.fd;
  ClientCall client_call(connection_, call, plan);
  const auto& answer = run_file(client_call, ISOGATE_RUNNER_READ, request, passes_ ? request.fd : -1);
  isogate_runner_result found = answer;
  const bool has_no_size = found.entry_size == ISOGATE_SIZE_UNKNOWN;
  if (has_no_size) found.entry_size = 0;
  take_entry(found, entry);
  if (entry.type != ISOGATE_ENTRY_REGULAR) connection_.refuse("it read what is no file");
  if (has_no_size) {
    entry.size = ISOGATE_SIZE_UNKNOWN;
    return;
  }
  const uint64_t left = entry.size - std::min(entry.size, request.offset);
  if (!passes_ && client_call.received() != std::min(left, request.limit))
    throw Error(ISOGATE_IO, "the file's bytes did not come whole");
}

uint64_t Link::write(const Call& call, const isogate_file_request& request) {
  check(request);
  // The end of a pipe's writer can be seen without reading it; of anything else only by reading.
  const bool passes = passes_ && (request.complete_fd < 0 || is_pipe(request.fd));
  Plan plan{.kind = Kind::kChanges, .has_body = true, .complete_fd = request.complete_fd};
  (passes ? plan.body_fd : plan.feed_fd) = request.fd;
  ClientCall client_call(connection_, call, plan);
  const auto& answer = run_file(client_call, ISOGATE_RUNNER_WRITE, request, passes ? request.fd : -1);
  if (!passes && answer.written != client_call.sent())
    connection_.refuse("it wrote another number of bytes than it got");
  return number(answer.written);
}

void Link::list(const Call& call, const isogate_file_request& request, const EntrySink& sink) {
  check(request);
  Plan plan{.kind = Kind::kReads, .entries = &sink};
  if (request.limit != 0) plan.most_entries = request.limit;
  ClientCall client_call(connection_, call, plan);
  run_file(client_call, ISOGATE_RUNNER_LIST, request, -1);
}

void Link::stat(const Call& call, const isogate_file_request& request, isogate_entry& entry) {
  check(request);
  ClientCall client_call(connection_, call, {.kind = Kind::kReads});
  take_entry(run_file(client_call, ISOGATE_RUNNER_STAT, request, -1), entry);
}

void Link::take_entry(const isogate_runner_result& from, isogate_entry& to) {
  if (from.entry_type < ISOGATE_ENTRY_REGULAR || from.entry_type > ISOGATE_ENTRY_OTHER)
    connection_.refuse("an entry of an unknown type");
  if (from.entry_size > INT64_MAX) connection_.refuse("an entry of an impossible size");
  to.type = from.entry_type;
  to.mode = from.entry_mode & 07777;
  to.size = from.entry_size;
  to.mtime_ns = from.entry_mtime_ns;
  to.name = {};
}

void Link::take_limits(std::string_view from, isogate_evidence& to) {
  isogate_runner_limit limit{};
  to.limit_count = 0;
  while (to.limit_count < ISOGATE_EVIDENCE_LIMITS_MAX && take(from, limit))
    add_limit(to, limit.id, limit.value);
  if (!from.empty()) connection_.refuse("limits of a wrong size");
}

void Link::evidence(const Call& call, const isogate_evidence_request& request, isogate_evidence& out) {
  check(request);
  ClientCall client_call(connection_, call, {.kind = Kind::kReads});
  const isogate_runner_result& answer =
      client_call.run({}, [&](std::string& frame, uint32_t stream) { append(frame, stream, request); });
  out.flags = answer.evidence_flags & kEvidence;
  measured(out) = measured(answer);
  take_limits(client_call.attached(), out);
}

void Link::disk_use(const Call& call, isogate_disk_use& out) {
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.fd = request.complete_fd = -1;
  ClientCall client_call(connection_, call, {.kind = Kind::kReads});
  run_file(client_call, ISOGATE_RUNNER_DISK_USE, request, -1);
  std::string_view answer = client_call.attached();
  isogate_runner_disk found{};
  if (!take(answer, found) || !answer.empty()) connection_.refuse("a use of the disk of a wrong size");
  out.flags = found.flags & (ISOGATE_DISK_ENFORCED | ISOGATE_DISK_EXACT);
  out.used_bytes = number(found.used_bytes);
  out.limit_bytes = number(found.limit_bytes);
  out.used_files = number(found.used_files);
  out.limit_files = number(found.limit_files);
}

// The records go to the host unread: it checks what comes from a backend.
void Link::watch(const Call& call, const isogate_file_request& request) {
  check(request);
  Plan plan{.kind = Kind::kReads, .ends_with_reader = !passes_};
  if (!passes_) plan.out_fds[0] = request.fd;
  ClientCall client_call(connection_, call, plan);
  try {
    run_file(client_call, ISOGATE_RUNNER_WATCH, request, passes_ ? request.fd : -1);
  } catch (const Error& error) {
    if (client_call.was_begun() && error.status() == ISOGATE_UNAVAILABLE && !client_call.was_answered())
      throw Error(ISOGATE_IO, error.what());
    throw;
  }
}

// What is lost once the connection was there is not to be tried again.
void Link::connect_to_port(const Call& call, const isogate_connect_request& request) {
  check(request);
  Plan plan{.kind = Kind::kReads, .ready_fd = request.ready_fd};
  if (!passes_) {
    plan.feed_fd = plan.out_fds[0] = plan.ends_fd = request.stream_fd;
    plan.ends_with_reader = true;
  }
  const uint16_t flags = passes_ ? ISOGATE_RUNNER_WITH_DESCRIPTORS : 0;
  const std::span<const int> passed(&request.stream_fd, passes_ ? 1 : 0);
  ClientCall client_call(connection_, call, plan);
  try {
    client_call.run(passed, [&](std::string& out, uint32_t stream) {
      FrameWriter(out, ISOGATE_RUNNER_CONNECT, stream, flags).add(isogate_runner_connect{request.port, 0});
    });
  } catch (const Error& error) {
    if (!client_call.was_ready() || error.status() == ISOGATE_CANCELLED) throw;
    throw Error(ISOGATE_IO, error.what(), error.os_errno());
  }
  if (!client_call.was_ready()) connection_.refuse("the end of a connection that was not there");
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

std::string read_text(RunnerLink& link, const Call& call, std::string_view path) {
  std::string text(16384, '\0');  // less than a socket holds; a pipe may hold but a page
  std::array<int, 2> pair{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    fail_with_errno("cannot make a pair of sockets", errno);
  const link::Descriptor reader(pair[0]), writer(pair[1]);
  isogate_file_request request{};
  request.struct_size = sizeof request;
  request.scope = ISOGATE_SCOPE_SANDBOX;
  request.path = str(path);
  request.limit = text.size();
  request.fd = writer.get();
  request.complete_fd = -1;
  isogate_entry entry{};
  entry.struct_size = sizeof entry;
  link.read(call, request, entry);
  // All of it is in the socket, whoever still has its other end open.
  const ssize_t size = ::recv(reader.get(), text.data(), text.size(), MSG_DONTWAIT);
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

}  // namespace isogate::sdk
