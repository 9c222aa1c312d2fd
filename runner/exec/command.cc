#include "runner/exec/command.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "lib/sigpipe.h"
#include "lib/text.h"
#include "runner/enclosure/init_channel.h"
#include "runner/enclosure/measure.h"
#include "runner/exec/command_runner.h"
#include "runner/exec/raw_syscall.h"
#include "runner/exec/tree/reaper_watch.h"
#include "runner/files/workspace_path.h"
#include "runner/files/workspace_resolve.h"

namespace isogate {
namespace {

// A program may open its own streams by name, such as /dev/stderr: so pipes must belong to its user.
void give_pipes(const Command& command) {
  if (!command.identity.change || command.pty) return;
  for (const int fd : {command.stdin_fd, command.stdout_fd, command.stderr_fd}) {
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) continue;
    if (info.st_uid == command.identity.uid) continue;
    [[maybe_unused]] const int given = ::fchown(fd, command.identity.uid, command.identity.gid);
  }
}

// The limits that SampledTree samples.
constexpr uint64_t kSampler =
    ISOGATE_CAP_LIMIT_MEMORY_SAMPLED | ISOGATE_CAP_LIMIT_CPU_SAMPLED | ISOGATE_CAP_LIMIT_PIDS_SAMPLED;

// What the sampler reports about the ended run.
Result<Ending> limited(Result<Ending> ending, Exceeded exceeded) {
  if (!ending) return ending;
  if (exceeded == Exceeded::unseen)
    return Error{ISOGATE_LOST, 0, "its limits could not be sampled any more, and it was killed"};
  if (exceeded == Exceeded::memory) ending->oom_killed = true;
  if (exceeded == Exceeded::pids) ending->pids_exceeded = true;
  return ending;
}

constexpr const char* kCommandTooLong =
    "the arguments and the environment are too long for the kernel (128 KiB each, 2 MiB in all)";

// Never blocks: a pipe that polls writable takes PIPE_BUF bytes.
void tell_stderr(const Command& command, int os_errno) {
  const int fd = command.pty ? command.stdout_fd : command.stderr_fd;
  pollfd slot = {fd, POLLOUT, 0};
  if (fd < 0 || ::poll(&slot, 1, 0) != 1 || (slot.revents & POLLOUT) == 0) return;
  std::string line = "isogate: cannot run `" + command.argv.front().substr(0, 2048) +
                     "`: " + std::generic_category().message(os_errno) + (command.pty ? "\r\n" : "\n");
  const SigpipeGuard guard;
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
}

// ru_maxrss starts at the peak of the address space from which the program was exec'd, which is this process;
// an init is small.
uint64_t known_peak(uint64_t max_rss_kib) {
  rusage own{};
  if (::getrusage(RUSAGE_SELF, &own) != 0) return 0;
  return max_rss_kib > static_cast<uint64_t>(own.ru_maxrss) ? max_rss_kib * 1024 : 0;
}

Result<Ending> not_started(const Command& command, const SpawnReport& report, Ending ending) {
  if (report.stage != kStageExec) return describe_failure(report, command.identity);
  if (report.os_errno == E2BIG) return Error{ISOGATE_INVALID_ARGUMENT, E2BIG, kCommandTooLong};
  ending.started = false;
  ending.os_errno = report.os_errno;
  ending.exit_code = report.os_errno == ENOENT ? 127 : 126;
  ending.term_signal = 0;
  tell_stderr(command, report.os_errno);
  return ending;
}

Ending ending_from(const RunLoopResult& result, const CgroupSlot& slot) {
  Ending ending;
  ending.killed = result.killed;
  ending.left_behind = result.left_behind;
  ending.oom_killed =
      result.out_of_memory || (slot.oom_events && raw_oom_kills(slot.oom_events.get()) > slot.oom_before);
  if (!result.ended) {  // killed, and held back by the kernel
    ending.term_signal = SIGKILL;
  } else if (WIFSIGNALED(result.status)) {
    ending.term_signal = WTERMSIG(result.status);
  } else {
    ending.exit_code = WEXITSTATUS(result.status);
  }
  ending.wall_ns = result.ended ? result.end_ns - result.start_ns : 0;
  ending.cpu_ns = result.cpu_ns;
  ending.max_rss_bytes = result.from_init ? result.max_rss_kib * 1024 : known_peak(result.max_rss_kib);
  return ending;
}

// The program never ran, for a reason that a run without the leaf does not have.
bool leaf_was_at_fault(const RunLoop& loop, const SpawnReport& report, const CgroupSlot& slot) {
  if (slot.leaf == nullptr || !slot.leaf->pooled) return false;
  const long error = -loop.result.spawn_error;
  if (error != 0) return error != EAGAIN && error != ENOMEM;
  return loop.result.ended && !loop.result.killed && report.stage == kStageBorn &&
         WIFSIGNALED(loop.result.status);
}

// If exec failed, also writes that to the program's stderr, as a shell does.
Result<Ending> ending_of(const Command& command, const RunLoop& loop, const SpawnReport& report,
                         const CgroupSlot& slot) {
  const RunLoopResult& result = loop.result;
  if (result.spawn_error != 0) {
    return os_error("cannot start a process", static_cast<int>(-result.spawn_error));
  }
  if (!result.finished) return Error{ISOGATE_LOST, 0, "the reaper of the program was killed"};
  if (result.status_lost) return Error{ISOGATE_LOST, ECHILD, "somebody else took the program's exit status"};
  const Ending ending = ending_from(result, slot);
  if (report.os_errno != 0) return not_started(command, report, ending);
  if (report.stage != kStageExec && !ending.killed && !ending.oom_killed) {
    return describe_failure(report, command.identity);
  }
  return ending;
}

// A terminal in place of a program's three streams, pumped by the loop.
struct Terminal {
  ~Terminal() {
    if (pump.slave < 0) pty.slave.release();  // closed by the loop
  }
  Pty pty;
  PtyPump pump;
  const SigpipeGuard guard;
};

// What the loop gets of the command. Null: it has no terminal.
Result<std::unique_ptr<Terminal>> connect_command(RunLoop& loop, const Command& command, int null_fd) {
  const int streams[3] = {command.stdin_fd, command.stdout_fd, command.stderr_fd};
  for (int i = 0; i < 3; ++i) loop.plan.streams[i] = streams[i] < 0 ? null_fd : streams[i];
  loop.start.cancel_fd = command.cancel_fd;
  loop.control_fd = command.control_fd;
  if (!command.pty) return std::unique_ptr<Terminal>();
  auto opened = open_pty(command.identity, command.rows, command.cols);
  if (!opened) return opened.error();
  auto terminal = std::make_unique<Terminal>();
  terminal->pty = std::move(*opened);
  PtyPump& pump = terminal->pump;
  pump.master = terminal->pty.master.get();
  pump.slave = terminal->pty.slave.get();
  pump.input_fd = command.stdin_fd;
  pump.output_fd = command.stdout_fd;
  pump.end_due = command.stdin_fd < 0;
  for (int& stream : loop.plan.streams) stream = pump.slave;
  loop.plan.terminal = true;
  loop.pump = &pump;
  return terminal;
}

// What the loop gets of the groups that the program runs in.
void watch_groups(RunLoop& loop, const CgroupSlot& slot) {
  loop.oom_fd = slot.oom_kills_one ? slot.oom_events.get() : -1;
  loop.oom_before = slot.oom_before;
  loop.quota = slot.quota;
}

}  // namespace

void CommandRunner::notice(const std::string& line) const {
  if (options_.notice) options_.notice(line);
}

Result<CgroupSlot> CommandRunner::acquire(const Limits& limits, bool want_leaf) {
  if (cgroups_ == nullptr) {
    if (!limits.empty()) return unsupported("limits cannot be enforced here: cgroups are not used");
    return CgroupSlot{};
  }
  auto slot = cgroups_->acquire(limits, want_leaf);
  if (slot && !slot->leaf_failure.empty()) {
    notice("a program runs under a reaper, there is no cgroup2 leaf for it: " + slot->leaf_failure);
  }
  return slot;
}

SpawnPlan CommandRunner::plan_of(const Identity& identity, const SpawnStack& stack) const {
  SpawnPlan plan;
  plan.limits = process_limits_.data();
  plan.limit_count = static_cast<int>(process_limits_.size());
  plan.ignored_signals = ignored_signals_;
  plan.bounding = bounding_;
  plan.change_identity = identity.change;
  plan.uid = identity.uid;
  plan.gid = identity.gid;
  plan.stack = stack.program;
  plan.stack_size = SpawnStack::kSize;
  plan.report = stack.report;
  for (int& stream : plan.streams) stream = null_device_.get();
  return plan;
}

void CommandRunner::plan(RunLoop& loop, const Command& command, const CgroupSlot& slot,
                         const SpawnStack& stack) {
  loop.plan = plan_of(command.identity, stack);
  loop.plan.cwd_fd = command.cwd_fd;
  loop.start.stage = &stack.report->stage;
  loop.plan.copy_memory =
      static_cast<bool>(slot.oom_events);  // its group must not be charged for this process
  for (size_t i = 0; i < slot.limits.size() && i < kMaxJoins; ++i) {
    loop.plan.join_fds[i] = slot.limits[i].tasks.get();
  }
  watch_groups(loop, slot);
  loop.plan.nice = options_.nice;
  loop.walk = walk_;
  loop.in_reaper = slot.leaf == nullptr;
  loop.plan.child_signal = loop.in_reaper;
  if (loop.in_reaper) {
    loop.host_pidfd = host_pidfd_.get();
    loop.child_signal_fd = child_signals_.get();
  } else {
    loop.plan.leaf_fd = slot.leaf->directory.get();
    loop.leaf_events_fd = slot.leaf->events.get();
    loop.leaf_kill_fd = slot.leaf->kill.get();
  }
}

namespace {

// The reaper was killed between clone and exec: the child still runs in this process's memory, which must
// stay until it has ended.
void end_start(const StartUnderWay& start) {
  if (start.pidfd < 0 || start.started != 0) return;
  if (::syscall(SYS_pidfd_send_signal, start.pidfd, SIGKILL, nullptr, 0) != 0) return;
  pollfd child = {start.pidfd, POLLIN, 0};
  while (::poll(&child, 1, -1) < 0 && errno == EINTR) {
  }
}

}  // namespace

void CommandRunner::run_loop(RunLoop& loop, const SpawnStack& stack) {
  long failed = 0;
  {
    const SpawnRescuer::Watch watch(rescuer_, loop.start);
    if (loop.in_reaper) {
      failed = raw_run_reaper(loop, stack.reaper, SpawnStack::kSize);
    } else {
      raw_run_leaf(loop);
    }
  }
  if (failed == 0 && !loop.result.finished) end_start(loop.start);
  if (loop.start.pidfd >= 0) ::close(loop.start.pidfd);
  if (failed < 0) {
    loop.result.spawn_error = failed;
    loop.result.finished = true;
  }
}

Limits CommandRunner::sampled_of(const Command& command) const {
  if (!command.limits_sampled) return {};
  const uint64_t by_kernel = cgroups_ != nullptr ? cgroups_->capabilities() : 0;
  Limits can_be = command.limits, sampled;
  for (const LimitKind& kind : kLimitKinds) {
    if ((kSampler & kind.sampled) == 0) can_be.set(kind.id, 0);
    if ((by_kernel & kind.exec) == 0) sampled.set(kind.id, can_be.get(kind.id));
  }
  // A sampled run needs a reaper, which a leaf does not have.
  const bool all = !sampled.empty() && cgroups_ != nullptr && cgroups_->in_leaf(command.limits);
  return all ? can_be : sampled;
}

Result<Ending> CommandRunner::run_sampled(const Command& command, const PreparedProgram& program,
                                          const Limits& sampled) {
  if (auto started = sampler_.start(); !started) return started.error();
  Limits by_kernel = command.limits;
  for (const LimitKind& kind : kLimitKinds)
    if (sampled.get(kind.id) != 0) by_kernel.set(kind.id, 0);
  auto slot = acquire(by_kernel, false);
  if (!slot) return slot.error();
  bool again = false;
  auto ending = run_in(command, program, *slot, sampled, &again);
  if (cgroups_ != nullptr) cgroups_->release(std::move(*slot));
  if (ending) ending->isolation = ISOGATE_ISOLATION_NONE;
  return ending;
}

// Sets *again where the leaf was at fault and nothing has run yet.
Result<Ending> CommandRunner::run_in(const Command& command, const PreparedProgram& program, CgroupSlot& slot,
                                     const Limits& sampled, bool* again) {
  const auto stack = stacks_.take();
  if (!stack) return stack.error();
  RunLoop loop;
  plan(loop, command, slot, **stack);
  program.fill(loop.plan);
  const auto terminal = connect_command(loop, command, null_device_.get());
  if (!terminal) return terminal.error();
  std::optional<LimitSampler::Watch> watch;
  if (!sampled.empty()) watch.emplace(sampler_, sampled, &loop.reaper_pid);
  run_loop(loop, **stack);
  const Exceeded exceeded = watch ? watch->exceeded() : Exceeded::nothing;
  watch.reset();
  if (loop.result.left_behind) keep_dying(loop);
  const SpawnReport report = *(*stack)->report;
  *again = leaf_was_at_fault(loop, report, slot);
  if (slot.leaf != nullptr && (loop.result.leaf_spent || *again)) slot.leaf->pooled = false;
  slot.quota_raised = loop.result.quota_raised;
  return limited(ending_of(command, loop, report, slot), exceeded);
}

Result<Ending> CommandRunner::run(const Command& command) {
  if (broken_) return *broken_;
  if (is_signalled(command.cancel_fd)) {
    return Error{ISOGATE_CANCELLED, 0, "cancelled before the program was started"};
  }
  auto program = PreparedProgram::make(command);
  if (!program) return program.error();
  give_pipes(command);
  if (Enclosure* const place = command.site.enclosure(); place != nullptr)
    return run_enclosed(*place, command, *program);
  reap_dying();
  if (const Limits sampled = sampled_of(command); !sampled.empty())
    return run_sampled(command, *program, sampled);
  for (const bool want_leaf : {true, false}) {
    auto slot = acquire(command.limits, want_leaf);
    if (!slot) return slot.error();
    bool again = false;
    auto ending = run_in(command, *program, *slot, {}, &again);
    if (cgroups_ != nullptr) cgroups_->release(std::move(*slot));
    if (!again) {
      if (ending) ending->isolation = ISOGATE_ISOLATION_NONE;
      return ending;
    }
    notice("a program runs under a reaper, its cgroup2 leaf did not work: " + ending.error().message);
  }
  return Error{ISOGATE_INTERNAL, 0, "cannot start the program in any way"};
}

Result<isogate_evidence> CommandRunner::measure(const Site& site, const Identity& identity,
                                                const isogate_evidence_request& request) {
  if (broken_) return *broken_;
  if (Enclosure* const place = site.enclosure(); place != nullptr)
    return measure_enclosed(*place, identity, request);
  const auto stack = stacks_.take();
  if (!stack) return stack.error();
  return measure_identity(plan_of(identity, **stack), identity, rescuer_);
}

void CommandRunner::keep_dying(const RunLoop& loop) {
  notice("a killed program is held back by the kernel; its processes are still there");
  if (loop.result.ended || loop.in_reaper) return;
  const std::lock_guard lock(dying_mutex_);
  dying_.push_back(loop.result.pid);
}

void CommandRunner::reap_dying() {
  const std::lock_guard lock(dying_mutex_);
  std::erase_if(dying_, [](pid_t pid) { return ::waitpid(pid, nullptr, __WALL | WNOHANG) != 0; });
}

namespace {

// tree.cc identifies processes by /proc.
bool proc_is_ours() {
  const auto target = read_link(AT_FDCWD, "/proc/self", "");
  return target && *target == std::to_string(::getpid());
}

// A field of /proc/self/status, which is a hexadecimal mask; all bits where it cannot be read.
uint64_t status_mask(const std::string& status, const std::string& name) {
  return number_in<uint64_t>(line_field(status, name).value_or(""), 16).value_or(~uint64_t{0});
}

// Those that a library may ignore at any time.
constexpr uint64_t kUsualSignals = [] {
  uint64_t mask = 0;
  for (const int signal :
       {SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGTERM, SIGCHLD, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU})
    mask |= uint64_t{1} << (signal - 1);
  return mask;
}();

// Each program's start changes the uid of a child that shares this process's memory, and with that value the
// kernel then lets every process of the new uid trace it.
bool programs_could_trace_us() {
  return ::geteuid() == 0 && read_small_file(AT_FDCWD, "/proc/sys/fs/suid_dumpable") == "1\n";
}

bool child_signal_is_ignored() {
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) != 0) return true;
  return action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0;
}

}  // namespace

CommandRunner::CommandRunner(RunnerOptions options) : options_(std::move(options)) {
  open_descriptors();
  const std::string status = read_small_file(AT_FDCWD, "/proc/self/status");
  ignored_signals_ = status_mask(status, "SigIgn") | kUsualSignals;
  bounding_ = status_mask(status, "CapBnd");
  walk_ = raw_tree_walk();
  if (options_.use_cgroups && !broken_) make_cgroups();
  const bool leaf = cgroups_ != nullptr && cgroups_->has_leaf();
  abilities_.tree_kill = leaf ? "cgroup2 leaf" : "reaper";
  if (!leaf && !broken_ && !proc_is_ours()) {
    broken_ = unsupported(
        "cannot run programs: /proc is not that of this process, so their trees could not be killed");
  }
  if (auto pty = open_pty({}, 0, 0)) {
    abilities_.capabilities |= ISOGATE_CAP_PTY;
  } else {
    lack("terminal: " + pty.error().message);
  }
  abilities_.capabilities |= ISOGATE_CAP_MERGE_STDERR;
  if (!broken_ && proc_is_ours()) abilities_.capabilities |= kSampler;
  if (!broken_) return;
  abilities_.broken = broken_->message;
  lack(broken_->message);
}

CommandRunner::~CommandRunner() {
  if (watcher_ > 0) {
    ::kill(watcher_, SIGKILL);
    while (::waitpid(watcher_, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  reap_dying();
}

void CommandRunner::open_descriptors() {
  if (auto started = rescuer_.start(); !started) broken_ = started.error();
  null_device_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_device_) broken_ = os_error("cannot run programs: cannot open `/dev/null`", errno);
  host_pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!host_pidfd_) broken_ = os_error("cannot run programs: pidfd_open (Linux 5.3) failed", errno);
  sigset_t child{};
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  child_signals_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_signals_) broken_ = os_error("cannot run programs: signalfd failed", errno);
  if (programs_could_trace_us())
    broken_ = unsupported(
        "cannot run programs: with the sysctl fs.suid_dumpable=1 they could take over this process; set it "
        "to 0");
}

void CommandRunner::make_cgroups() {
  cgroups_ = Cgroups::make(options_.group, options_.use_leaf);
  if (cgroups_->v2_usable()) {
    std::string why = child_signal_is_ignored() ? "this process ignores SIGCHLD" : try_leaf();
    if (!why.empty()) cgroups_->refuse_leaf(why);
  }
  if (!cgroups_->bases().empty()) {
    const std::string why = start_watcher();
    if (!why.empty() && cgroups_->v2_usable()) cgroups_->refuse_leaf(why);
  }
  abilities_.capabilities |= cgroups_->capabilities();
  if (const std::string missing = cgroups_->missing(); !missing.empty()) lack(missing);
}

// Proven by trying it: a child born in a leaf, which ends by itself. A cgroup that has once been killed kills
// its children at birth on some kernels, and so do leaves below such a one.
std::string CommandRunner::try_leaf() {
  auto leaf = cgroups_->make_leaf();
  if (!leaf) return leaf.error().message;
  const auto stack = stacks_.take();
  if (!stack) return stack.error().message;
  CgroupSlot slot;
  slot.leaf = std::move(*leaf);
  RunLoop loop;
  plan(loop, Command(Site::host()), slot, **stack);
  loop.plan.instead = raw_succeed;
  run_loop(loop, **stack);
  const bool lived = loop.result.spawn_error == 0 && loop.result.ended && loop.result.status == 0;
  slot.leaf->pooled = false;
  cgroups_->release(std::move(slot));
  if (loop.result.spawn_error != 0) {
    return os_error("cannot start a process in a leaf", static_cast<int>(-loop.result.spawn_error)).message;
  }
  return lived ? "" : "a process started in a leaf is killed at birth";
}

std::string CommandRunner::start_watcher() {
  WatchPlan watch;
  watch.host_pidfd = host_pidfd_.get();
  for (const auto& base : cgroups_->bases()) {
    if (watch.count == WatchPlan::kMaxBases || base->name().size() >= sizeof WatchedBase{}.name) {
      return "too many cgroup hierarchies to watch";
    }
    WatchedBase& watched = watch.bases[watch.count++];
    watched.parent_fd = base->parent_fd();
    watched.dir_fd = base->fd();
    watched.kill_fd = base->kill_fd();
    std::memcpy(watched.name, base->name().c_str(), base->name().size() + 1);
  }
  const auto stack = stacks_.take();
  if (!stack) return stack.error().message;
  const long pid = raw_start_watcher(watch, (*stack)->reaper, (*stack)->program, SpawnStack::kSize);
  if (pid < 0) return os_error("cannot start the watcher", static_cast<int>(-pid)).message;
  watcher_ = static_cast<pid_t>(pid);
  return "";
}

void CommandRunner::lack(const std::string& what) {
  abilities_.missing += (abilities_.missing.empty() ? "" : "; ") + what;
}

std::unique_ptr<Runner> Runner::make(RunnerOptions options) {
  return std::make_unique<CommandRunner>(std::move(options));
}

namespace {

constexpr std::chrono::seconds kReleasePatience{5}, kLaterPatience{1};
constexpr int kProofPatienceMs = 10'000;
constexpr std::chrono::milliseconds kDeparturePatience{100};
constexpr uint64_t kOwnNamespaces = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS;

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
  for (const ProcessLimit& each : place.profile().limits)
    if (each.resource == RLIMIT_NPROC)
      text += std::to_string(each.soft) + " processes and threads (max_processes)";
  text += ", its cgroup what `limits.max_pids` or else `pids` says; the init of each exec counts";
  return {ISOGATE_RESOURCE_EXHAUSTED, EAGAIN, std::move(text)};
}

// Where it failed, in words: the caller can correct a working directory. Otherwise as for any other run.
Result<Ending> enclosed_ending(const Enclosure& place, const Command& command, const RunLoop& loop,
                               const CgroupSlot& slot) {
  const SpawnReport report = {loop.result.init_lost ? kStageExec : loop.init_report.stage,
                              loop.init_report.os_errno};
  if (report.os_errno == EAGAIN && report.stage == kStageInit) return sandbox_is_full(place);
  if (report.os_errno != 0 && report.stage != kStageExec) {
    if (report.stage != kStageDirectory) return describe_failure(report, command.identity);
    const std::string of_whom = report.os_errno == EACCES && command.identity.change
                                    ? " of uid " + std::to_string(command.identity.uid)
                                    : "";
    Tree tree;
    tree.confined = !command.cwd.starts_with('/');
    Error error = resolve_error("cannot use " + quote_path(command.cwd.empty() ? "/workspace" : command.cwd) +
                                    " as working directory" + of_whom,
                                tree, -report.os_errno);
    error.status = ISOGATE_INVALID_ARGUMENT;
    return error;
  }
  auto ending = ending_of(command, loop, report, slot);
  if (ending && loop.result.init_lost && !ending->killed && !ending->oom_killed)
    return Error{ISOGATE_LOST, 0, "the init of the program's namespace was killed"};
  return ending;
}

}  // namespace

Result<Site> CommandRunner::enclose(EnclosureOptions options) {
  if (broken_) return *broken_;
  {
    const std::lock_guard lock(dying_mutex_);
    if (keeper_ == nullptr) {
      auto image = init_image();
      if (!image) return image.error();
      init_image_ = std::move(*image);
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
  if (!options.limits.empty()) {
    auto nested = nest(options);
    if (!nested) return nested.error();
    groups = std::move(*nested);
  }
  auto enclosure =
      std::make_shared<Enclosure>(std::move(options), *marks, init_image_.get(), bounding_,
                                  [this](InitProcess init) { keeper_->reap_later(std::move(init)); });
  enclosure->set_groups(std::move(groups));
  return Site(std::move(enclosure));
}

Result<std::unique_ptr<Cgroups>> CommandRunner::nest(EnclosureOptions& options) {
  if (cgroups_ != nullptr)
    return cgroups_->nest(options.limits, options.limits_best_effort,
                          options.user ? nullptr : &options.cgroups);
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

// A program has no descriptor of a device of this host.
int CommandRunner::null_of(const Enclosure& place) const {
  return place.null_fd() < 0 ? null_device_.get() : place.null_fd();
}

Result<InitProcess> CommandRunner::make_init(Enclosure& place, const Identity& identity) {
  auto sockets = make_socket_pair(SOCK_STREAM, "cannot make a socket for the sandbox's init");
  if (!sockets) return sockets.error();
  const auto stack = stacks_.take();
  if (!stack) return stack.error();
  SpawnPlan plan = plan_of(identity, **stack);
  for (int& stream : plan.streams) stream = null_of(place);
  plan.limits = place.profile().limits.data();
  plan.limit_count = static_cast<int>(place.profile().limits.size());
  plan.enclosure = &place.plan();
  plan.namespaces = kOwnNamespaces;
  plan.init_socket = sockets->theirs.get();
  plan.bridge_stack = (*stack)->reaper;
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
  init.socket = std::move(sockets->own);
  if ((*stack)->report->os_errno == 0 && (*stack)->report->stage == kStageInit) return init;
  const SpawnReport report = *(*stack)->report;
  keeper_->reap_later(std::move(init));
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

// One made in advance, unless it must have another user or be `fresh`. It has proven itself.
Result<InitProcess> CommandRunner::take_init(Enclosure& place, const Identity& identity, bool fresh,
                                             int cancel_fd) {
  const auto prove_or_bury = [&](InitProcess& init) {
    auto proven = prove(place, init, identity, cancel_fd);
    if (!proven) keeper_->reap_later(std::move(init));
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

// An init that has proven itself and has its order, and in `slot` the groups that it is in: one that stayed
// after another run, or one that joins them. One that was killed while it waited is replaced: nothing of this
// run ran in it.
Result<InitProcess> CommandRunner::instruct_init(Enclosure& place, const Command& command,
                                                 const std::string& order, Cgroups* groups,
                                                 const std::vector<int>& streams, CgroupSlot& slot) {
  InitProcess used;
  if (command.limits.empty() && place.is_of(command.identity)) used = place.take_used();
  if (used.pid >= 0) {
    slot = std::exchange(used.slot, {});
    if (slot.oom_events) slot.oom_before = raw_oom_kills(slot.oom_events.get());
    Result<void> done = groups == nullptr ? Result<void>() : groups->check_quota();
    if (done) done = prove(place, used, command.identity, command.cancel_fd);
    if (done) done = send_order(used.socket.get(), kInitRun, order, streams, command.cancel_fd);
    if (done) return used;
    bury(place, std::move(used), slot);
    if (done.error().status == ISOGATE_CANCELLED) return done.error();
  }
  if (groups != nullptr) {
    auto acquired = groups->acquire(command.limits, false);
    if (!acquired) return acquired.error();
    slot = std::move(*acquired);
  }
  auto to_join = groups_to_join(slot);
  if (!to_join) return to_join.error();
  std::vector<int> descriptors = streams;
  for (const Fd& group : *to_join) descriptors.push_back(group.get());
  for (const bool fresh : {false, true}) {
    auto init = take_init(place, command.identity, fresh, command.cancel_fd);
    if (!init) return init;
    const auto sent = send_order(init->socket.get(), kInitRun, order, descriptors, command.cancel_fd);
    if (sent) return init;
    keeper_->reap_later(std::move(*init));
    if (fresh || sent.error().os_errno != EPIPE) return sent.error();
  }
  return Error{ISOGATE_INTERNAL, 0, "cannot start the program in any way"};
}

// The sandbox's groups are returned when it is reaped, so that no run gets one that is not empty.
void CommandRunner::bury(Enclosure& place, InitProcess init, CgroupSlot& slot) {
  init.slot = std::exchange(slot, {});
  keeper_->reap_later(place.leaving(std::move(init)));
}

// It has reported, or is dead: its programs are gone. It waits for the next run, or ends; the caller waits
// for that end, which takes as long as that of several programs, only if the run had limits of its own: their
// groups are removed then.
void CommandRunner::dismiss_init(Enclosure& place, InitProcess init, const Command& command,
                                 const RunLoop& loop, bool out_of_memory, CgroupSlot& slot) {
  if (loop.result.left_behind) {
    notice("a killed program is held back by the kernel; its processes are still there");
    for (CgroupLimit& limit : slot.limits) limit.pooled = false;  // no other run joins them
  }
  const bool shares = command.limits.empty() && !slot.quota_raised;
  const bool waits =
      init.lasts && loop.init_report.waits == 1 && !loop.result.init_lost && loop.kill_began_ns == 0;
  if (loop.result.init_reaped) {
    init.tally->remove();
  } else if (shares && waits && !out_of_memory && place.profile().inits_ahead &&
             place.is_of(command.identity)) {
    init.slot = std::exchange(slot, {});
    init.cpu_ns += loop.init_report.cpu_ns;
    place.put_used(std::move(init));
  } else if (shares) {
    bury(place, std::move(init), slot);
  } else {
    keeper_->reap_now(std::move(init));
  }
}

Result<Ending> CommandRunner::run_in_init(Enclosure& place, const Command& command, const std::string& order,
                                          Cgroups* groups, CgroupSlot& slot) {
  if (place.groups() != nullptr) place.departures().wait_for_all(kDeparturePatience);
  RunLoop loop;
  loop.result.start_ns = raw::now_ns();
  const auto terminal = connect_command(loop, command, null_of(place));
  if (!terminal) return terminal.error();
  auto init = instruct_init(place, command, order, groups, {loop.plan.streams, loop.plan.streams + 3}, slot);
  if (!init) return init.error();
  loop.init_socket = init->socket.get();
  loop.init_cpu_before_ns = init->cpu_ns;
  loop.start.pidfd = init->pidfd.get();
  loop.result.pid = init->pid;
  watch_groups(loop, slot);
  raw_run_init(loop);
  slot.quota_raised = loop.result.quota_raised;
  auto ending = enclosed_ending(place, command, loop, slot);
  dismiss_init(place, std::move(*init), command, loop, !ending || ending->oom_killed, slot);
  if (ending) ending->isolation = ISOGATE_ISOLATION_NAMESPACE;  // its init has proven itself
  return ending;
}

Result<Ending> CommandRunner::run_enclosed(Enclosure& place, const Command& command,
                                           const PreparedProgram& program) {
  const Enclosure::Visit visit(place);
  if (!visit) return Error{ISOGATE_NO_SANDBOX, 0, "the sandbox is closed"};
  const std::string order = program.packed(command);
  if (order.size() > kInitMostBytes) return invalid(kCommandTooLong);
  Cgroups* const groups = place.groups() != nullptr ? place.groups()
                          : !command.limits.empty() ? cgroups_.get()
                                                    : nullptr;
  if (groups == nullptr && !command.limits.empty())
    return unsupported("limits cannot be enforced here: cgroups are not used");
  CgroupSlot slot;
  auto ending = run_in_init(place, command, order, groups, slot);
  if (groups != nullptr) groups->release(std::move(slot));
  if (place.profile().inits_ahead) keeper_->keep_ready(place);
  return ending;
}

}  // namespace isogate
