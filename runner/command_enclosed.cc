// The Runner's other way: in an enclosure, by its init.
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "runner/command_result.h"
#include "runner/command_runner.h"
#include "runner/init_channel.h"
#include "runner/raw_syscall.h"

namespace isogate {
namespace {

constexpr std::chrono::seconds kReleasePatience{5}, kLaterPatience{1};
constexpr int kProofPatienceMs = 10'000;
constexpr uint64_t kOwnNamespaces = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

// What the bounding set of this process holds: all that a child has to drop.
uint64_t bounding_set() {
  const std::string status = read_small_file(AT_FDCWD, "/proc/self/status");
  const size_t at = status.find("\nCapBnd:\t");
  if (at == std::string::npos) return ~uint64_t{0};
  uint64_t bits = ~uint64_t{0};
  const char* const digits = status.c_str() + at + std::strlen("\nCapBnd:\t");
  std::from_chars(digits, digits + 16, bits, 16);
  return bits;
}

struct SocketPair {
  Fd host, init;
};

Result<SocketPair> make_sockets() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return os_error("cannot make a socket for the sandbox's init", errno);
  return SocketPair{Fd(ends[0]), Fd(ends[1])};
}

Result<std::vector<Fd>> groups_to_join(const CgroupSlot& slot) {
  std::vector<Fd> groups;
  if (slot.leaf != nullptr) {
    Fd procs(::openat(slot.leaf->directory.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!procs) return os_error("cannot open `cgroup.procs`", errno);
    groups.push_back(std::move(procs));
  }
  for (const auto& limit : slot.limits) {
    Fd procs(::fcntl(limit.tasks.get(), F_DUPFD_CLOEXEC, 0));
    if (!procs) return os_error("cannot open `cgroup.procs`", errno);
    groups.push_back(std::move(procs));
  }
  if (groups.size() > kInitMostJoins) return unsupported("too many cgroup hierarchies");
  return groups;
}

Error sandbox_is_full(const Enclosure& place) {
  std::string text = "cannot start a process: the sandbox is full, or this host: its user may have ";
  const EnclosurePlan& plan = place.plan();
  for (int i = 0; i < plan.limit_count; ++i)
    if (plan.limits[i].resource == RLIMIT_NPROC)
      text += std::to_string(plan.limits[i].soft) + " processes and threads (max_processes)";
  text += ", its cgroup `limits.max_pids`; the init of each exec counts";
  return {ISOGATE_RESOURCE_EXHAUSTED, EAGAIN, std::move(text)};
}

// Where it failed, in words: a working directory is the caller's to mend. Otherwise as any other run's.
Result<Ending> enclosed_ending(const Enclosure& place, const Command& command, const Supervision& s,
                               const CgroupSlot& slot) {
  const SpawnReport report = {s.result.init_lost ? kStageExec : s.init_report.stage, s.init_report.os_errno};
  if (report.os_errno == EAGAIN && report.stage == kStageInit) return sandbox_is_full(place);
  if (report.os_errno != 0 && report.stage != kStageExec) {
    Error error = describe_failure(report, command.identity);
    if (report.stage == kStageDirectory) error.status = ISOGATE_INVALID_ARGUMENT;
    return error;
  }
  auto ending = ending_of(command, s, report, slot);
  if (ending && s.result.init_lost && !ending->killed && !ending->oom_killed)
    return Error{ISOGATE_LOST, 0, "the init of the program's namespace was killed"};
  return ending;
}

bool any(const isogate_limits& limits) {
  return limits.memory_bytes != 0 || limits.cpu_millis != 0 || limits.pids != 0 || limits.disk_bytes != 0;
}

}  // namespace

Result<Site> CommandRunner::enclose(EnclosureOptions options) {
  if (broken_) return *broken_;
  {
    const std::lock_guard lock(strays_mutex_);
    if (keeper_ == nullptr) {
      auto image = init_image();
      if (!image) return image.error();
      init_image_ = std::move(*image);
      bounding_ = bounding_set();
      auto keeper = std::make_unique<InitKeeper>(
          [this](Enclosure& place) { return make_init(place, place.identity()); });
      if (auto started = keeper->start(); !started) return started.error();
      keeper_ = std::move(keeper);
    }
  }
  auto marks = marks_of(options.mounts.get(), options.network.get(), options.user.get());
  if (!marks) return marks.error();
  marks->root = options.root;
  marks->workspace = options.workspace;
  std::unique_ptr<Cgroups> groups;
  if (any(options.limits)) {
    auto nested = nest(options);
    if (!nested) return nested.error();
    groups = std::move(*nested);
  }
  auto enclosure = std::make_shared<Enclosure>(std::move(options), *marks, init_image_.get(), bounding_,
                                               [this](InitProcess init) { keeper_->bury(std::move(init)); });
  enclosure->set_groups(std::move(groups));
  return Site(std::move(enclosure));
}

Result<std::unique_ptr<Cgroups>> CommandRunner::nest(const EnclosureOptions& options) {
  if (options.limits.disk_bytes != 0 && !options.limits_best_effort)
    return unsupported("the disk space of a sandbox cannot be limited here");
  if (cgroups_ != nullptr) return cgroups_->nest(options.limits, options.limits_best_effort);
  if (options.limits_best_effort) return std::unique_ptr<Cgroups>();
  return unsupported("limits cannot be enforced here: cgroups are not used");
}

Result<void> CommandRunner::release(const Site& site) {
  Enclosure* const place = site.enclosure();
  if (place == nullptr) return {};
  const bool first = place->close();
  const int left = place->tally()->wait_for_none(first ? kReleasePatience : kLaterPatience);
  if (left == 0) return {};
  return Error{ISOGATE_UNAVAILABLE, 0,
               "something still runs in the sandbox: " + std::to_string(left) +
                   " of its process trees were killed and are held back by the kernel (a stuck disk?)"};
}

// A program holds no descriptor of a device of this host.
int CommandRunner::null_of(const Enclosure& place) const {
  return place.null_fd() < 0 ? null_device_.get() : place.null_fd();
}

Result<InitProcess> CommandRunner::make_init(Enclosure& place, const Identity& identity) {
  auto sockets = make_sockets();
  if (!sockets) return sockets.error();
  auto mapped = stacks_.take();
  if (!mapped) return mapped.error();
  const BorrowedStack stack(stacks_, *mapped);
  SpawnPlan plan;
  for (int& stream : plan.streams) stream = null_of(place);
  plan.change_identity = identity.change;
  plan.uid = identity.uid;
  plan.gid = identity.gid;
  plan.stack = stack->program;
  plan.stack_size = SpawnStack::kSize;
  plan.report = stack->report;
  plan.enclosure = &place.plan();
  plan.namespaces = kOwnNamespaces;
  plan.init_socket = sockets->init.get();
  plan.bridge_stack = stack->supervisor;
  int pidfd = -1;
  InitProcess init;
  uint64_t mask = 0;
  raw::block_signals(&mask);
  const long failed = raw_spawn(plan, &pidfd, &init.pid);
  raw::restore_signals(&mask);
  if (failed == -EAGAIN) return sandbox_is_full(place);
  if (failed < 0) return os_error("cannot start a process", static_cast<int>(-failed));
  init.tally = place.tally();
  init.tally->add();
  init.pidfd = Fd(pidfd);
  init.socket = std::move(sockets->host);
  if (stack->report->os_errno == 0 && stack->report->stage == kStageInit) return init;
  const SpawnReport report = *stack->report;
  keeper_->bury(std::move(init));
  if (report.os_errno == EAGAIN) return sandbox_is_full(place);
  return describe_failure(report, identity);
}

namespace {

Result<void> prove(const Enclosure& place, const InitProcess& init, const Identity& identity, int cancel_fd) {
  InitProof proof = {};
  auto received = receive_from_init(init.socket.get(), &proof, sizeof proof, kProofPatienceMs, cancel_fd);
  if (!received) return received;
  return check_proof(proof, place.marks(), identity.change ? identity.uid : ::geteuid(),
                     identity.change ? identity.gid : ::getegid());
}

}  // namespace

// One made ahead, unless it has to be another user's or `fresh`. It has proven itself.
Result<InitProcess> CommandRunner::take_init(Enclosure& place, const Identity& identity, bool fresh,
                                             int cancel_fd) {
  const auto prove_or_bury = [&](InitProcess& init) {
    auto proven = prove(place, init, identity, cancel_fd);
    if (!proven) keeper_->bury(std::move(init));
    return proven;
  };
  InitProcess ready;
  if (place.is_of(identity) && !fresh) ready = place.take_ready();
  if (ready.pid >= 0) {
    const auto proven = prove_or_bury(ready);
    if (proven) return ready;
    if (proven.error().status == ISOGATE_CANCELLED) return proven.error();
    if (proven.error().os_errno != EPIPE) notice("an init made ahead is replaced: " + proven.error().message);
  }
  auto made = make_init(place, identity);
  if (!made) return made;
  if (const auto proven = prove_or_bury(*made); !proven) return proven.error();
  return made;
}

// An init that has its order. One that was killed while it waited is replaced: nothing has run in it.
Result<InitProcess> CommandRunner::instruct_init(Enclosure& place, const Command& command,
                                                 const std::string& order,
                                                 const std::vector<int>& descriptors) {
  for (const bool fresh : {false, true}) {
    auto init = take_init(place, command.identity, fresh, command.cancel_fd);
    if (!init) return init;
    const auto told = send_order(init->socket.get(), kInitRun, order, descriptors, command.cancel_fd);
    if (told) return init;
    keeper_->bury(std::move(*init));
    if (fresh || told.error().os_errno != EPIPE) return told.error();
  }
  return Error{ISOGATE_INTERNAL, 0, "cannot start the program in any way"};
}

// It has reported, or is dead.
void CommandRunner::dismiss_init(InitProcess init, const Supervision& s, const CgroupSlot& slot) {
  if (s.result.left_behind)
    notice("a killed program is held back by the kernel; its processes are still there");
  if (s.result.init_reaped) {
    init.tally->remove();
  } else if (slot.limits.empty() && slot.leaf == nullptr) {
    keeper_->bury(std::move(init));
  } else {
    keeper_->bury_now(std::move(init));  // its groups can be removed then
  }
}

Result<Ending> CommandRunner::run_in_init(Enclosure& place, const Command& command, const std::string& order,
                                          CgroupSlot& slot) {
  auto groups = groups_to_join(slot);
  if (!groups) return groups.error();
  Supervision s;
  s.result.start_ns = raw::now_ns();
  const int streams[3] = {command.stdin_fd, command.stdout_fd, command.stderr_fd};
  for (int i = 0; i < 3; ++i) s.plan.streams[i] = streams[i] < 0 ? null_of(place) : streams[i];
  std::unique_ptr<Terminal> terminal;
  if (command.pty) {
    auto attached = attach_terminal(command, s);
    if (!attached) return attached.error();
    terminal = std::move(*attached);
  }
  std::vector<int> descriptors(s.plan.streams, s.plan.streams + 3);
  for (const Fd& group : *groups) descriptors.push_back(group.get());
  auto init = instruct_init(place, command, order, descriptors);
  if (!init) return init.error();
  s.init_socket = init->socket.get();
  s.start.pidfd = init->pidfd.get();
  s.result.pid = init->pid;
  s.start.cancel_fd = command.cancel_fd;
  s.control_fd = command.control_fd;
  if (slot.oom_kills_one) s.oom_fd = slot.oom_events.get();
  s.oom_before = slot.oom_before;
  s.quota = slot.quota;
  {
    const std::optional<SigpipeGuard> guard =
        s.pump != nullptr ? std::optional<SigpipeGuard>(std::in_place) : std::nullopt;
    raw_supervise_init(s);
  }
  if (terminal != nullptr && terminal->pump.slave < 0) terminal->pty.slave.release();  // closed by the loop
  slot.quota_lifted = s.result.quota_lifted;
  dismiss_init(std::move(*init), s, slot);
  auto ending = enclosed_ending(place, command, s, slot);
  if (ending) ending->isolation = ISOGATE_ISOLATION_NAMESPACE;  // its init has proven itself
  return ending;
}

Result<Ending> CommandRunner::run_enclosed(Enclosure& place, const Command& command,
                                           const PreparedProgram& program) {
  const Enclosure::Visit visit(place);
  if (!visit) return Error{ISOGATE_NO_SANDBOX, 0, "the sandbox is closed"};
  const std::string order = program.packed(command);
  if (order.size() > kInitMostBytes)
    return invalid(
        "the arguments and the environment are too long for the kernel (128 KiB each, 2 MiB in all)");
  Cgroups* const groups = place.groups() != nullptr ? place.groups()
                          : any(command.limits)     ? cgroups_.get()
                                                    : nullptr;
  if (groups == nullptr && any(command.limits))
    return unsupported("limits cannot be enforced here: cgroups are not used");
  CgroupSlot slot;
  if (groups != nullptr) {
    auto acquired = groups->acquire(command.limits, false);
    if (!acquired) return acquired.error();
    slot = std::move(*acquired);
  }
  auto ending = run_in_init(place, command, order, slot);
  if (groups != nullptr) groups->release(std::move(slot));
  if (place.inits_ahead()) keeper_->keep_ready(place);
  return ending;
}

}  // namespace isogate
