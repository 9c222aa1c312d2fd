#include "runner/command.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "runner/command_result.h"
#include "runner/command_runner.h"
#include "runner/measure.h"

namespace isogate {
namespace {

bool is_ready(int fd) {
  pollfd slot = {fd, POLLIN, 0};
  return fd >= 0 && ::poll(&slot, 1, 0) > 0;
}

// A program may open its own streams by name, as /dev/stderr: pipes are its user's then.
void give_pipes(const Command& command) {
  if (!command.identity.change || command.pty) return;
  for (const int fd : {command.stdin_fd, command.stdout_fd, command.stderr_fd}) {
    struct stat info {};
    if (fd < 0 || ::fstat(fd, &info) != 0 || !S_ISFIFO(info.st_mode)) continue;
    if (info.st_uid == command.identity.uid) continue;
    [[maybe_unused]] const int given = ::fchown(fd, command.identity.uid, command.identity.gid);
  }
}

bool any(const isogate_limits& limits) {
  return limits.memory_bytes != 0 || limits.cpu_millis != 0 || limits.pids != 0 || limits.disk_bytes != 0;
}

}  // namespace

Result<std::unique_ptr<Terminal>> attach_terminal(const Command& command, Supervision& s) {
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
  for (int& stream : s.plan.streams) stream = pump.slave;
  s.plan.terminal = true;
  s.pump = &pump;
  return terminal;
}

void CommandRunner::notice(const std::string& line) const {
  if (options_.notice) options_.notice(line);
}

Result<CgroupSlot> CommandRunner::acquire(const Command& command, bool want_leaf) {
  if (cgroups_ == nullptr) {
    if (any(command.limits)) return unsupported("limits cannot be enforced here: cgroups are not used");
    return CgroupSlot{};
  }
  auto slot = cgroups_->acquire(command.limits, want_leaf);
  if (slot && !slot->leaf_failure.empty()) {
    notice("a program runs under a supervisor, there is no cgroup2 leaf for it: " + slot->leaf_failure);
  }
  return slot;
}

void CommandRunner::plan(Supervision& s, const Command& command, const CgroupSlot& slot,
                         const SpawnStack& stack) {
  const int streams[3] = {command.stdin_fd, command.stdout_fd, command.stderr_fd};
  for (int i = 0; i < 3; ++i) s.plan.streams[i] = streams[i] < 0 ? null_device_.get() : streams[i];
  s.plan.cwd_fd = command.cwd_fd;
  s.plan.soft_files = soft_files_;
  s.plan.hard_files = hard_files_;
  s.plan.change_identity = command.identity.change;
  s.plan.uid = command.identity.uid;
  s.plan.gid = command.identity.gid;
  s.plan.stack = stack.program;
  s.plan.stack_size = SpawnStack::kSize;
  s.plan.report = stack.report;
  s.start.stage = &stack.report->stage;
  s.plan.copy_memory = command.limits.memory_bytes != 0;
  for (size_t i = 0; i < slot.limits.size() && i < kMaxJoins; ++i) {
    s.plan.join_fds[i] = slot.limits[i].tasks.get();
  }
  s.start.cancel_fd = command.cancel_fd;
  s.control_fd = command.control_fd;
  s.oom_fd = slot.oom_kills_one ? slot.oom_events.get() : -1;
  s.plan.nice = options_.nice;
  s.quota = slot.quota;
  s.walk = walk_;
  s.supervisor = slot.leaf == nullptr;
  s.plan.child_signal = s.supervisor;
  if (s.supervisor) {
    s.host_pidfd = host_pidfd_.get();
    s.child_signal_fd = child_signals_.get();
  } else {
    s.plan.leaf_fd = slot.leaf->directory.get();
    s.leaf_events_fd = slot.leaf->events.get();
    s.leaf_kill_fd = slot.leaf->kill.get();
  }
}

void CommandRunner::supervise(Supervision& s, const SpawnStack& stack) {
  const std::optional<SigpipeGuard> guard =
      s.pump != nullptr ? std::optional<SigpipeGuard>(std::in_place) : std::nullopt;
  long failed = 0;
  {
    const SpawnRescuer::Watch watch(rescuer_, s.start);
    if (s.supervisor) {
      failed = raw_supervise_child(s, stack.supervisor, SpawnStack::kSize);
    } else {
      raw_supervise_leaf(s);
    }
  }
  if (s.start.pidfd >= 0) ::close(s.start.pidfd);
  if (failed < 0) {
    s.result.spawn_error = failed;
    s.result.finished = true;
  }
}

// Sets *again where the leaf was at fault and nothing has run yet.
Result<Ending> CommandRunner::run_in(const Command& command, const PreparedProgram& program, CgroupSlot& slot,
                                     bool* again) {
  auto mapped = stacks_.take();
  if (!mapped) return mapped.error();
  const BorrowedStack stack(stacks_, *mapped);
  Supervision s;
  plan(s, command, slot, *stack);
  program.fill(s.plan);
  std::unique_ptr<Terminal> terminal;
  if (command.pty) {
    auto attached = attach_terminal(command, s);
    if (!attached) return attached.error();
    terminal = std::move(*attached);
  }
  supervise(s, *stack);
  if (terminal != nullptr && terminal->pump.slave < 0) terminal->pty.slave.release();  // closed by the loop
  if (s.result.left_behind) keep_stray(s);
  const SpawnReport report = *stack->report;
  *again = leaf_was_at_fault(s, report, slot);
  if (slot.leaf != nullptr && (s.result.leaf_spent || *again)) slot.leaf->pooled = false;
  slot.quota_lifted = s.result.quota_lifted;
  return ending_of(command, s, report, slot);
}

Result<Ending> CommandRunner::run(const Command& command) {
  if (broken_) return *broken_;
  if (is_ready(command.cancel_fd)) {
    return Error{ISOGATE_CANCELLED, 0, "cancelled before the program was started"};
  }
  auto program = PreparedProgram::make(command);
  if (!program) return program.error();
  give_pipes(command);
  if (Enclosure* const place = command.site.enclosure(); place != nullptr)
    return run_enclosed(*place, command, *program);
  reap_strays();
  for (const bool want_leaf : {true, false}) {
    auto slot = acquire(command, want_leaf);
    if (!slot) return slot.error();
    bool again = false;
    auto ending = run_in(command, *program, *slot, &again);
    if (cgroups_ != nullptr) cgroups_->release(std::move(*slot));
    if (!again) {
      if (ending) ending->isolation = ISOGATE_ISOLATION_NONE;
      return ending;
    }
    notice("a program runs under a supervisor, its cgroup2 leaf did not work: " + ending.error().message);
  }
  return Error{ISOGATE_INTERNAL, 0, "cannot start the program in any way"};
}

Result<isogate_evidence> CommandRunner::measure(const Site& site, const Identity& identity,
                                                const isogate_evidence_request& request) {
  if (Enclosure* const place = site.enclosure(); place != nullptr)
    return measure_enclosed(*place, identity, request);
  auto mapped = stacks_.take();
  if (!mapped) return mapped.error();
  const BorrowedStack stack(stacks_, *mapped);
  return measure_identity(identity, *stack, rescuer_);
}

void CommandRunner::keep_stray(const Supervision& s) {
  notice("a killed program is held back by the kernel; its processes are still there");
  if (s.result.ended || s.supervisor) return;
  const std::lock_guard lock(strays_mutex_);
  strays_.push_back(s.result.pid);
}

void CommandRunner::reap_strays() {
  const std::lock_guard lock(strays_mutex_);
  std::erase_if(strays_, [](pid_t pid) { return ::waitpid(pid, nullptr, __WALL | WNOHANG) != 0; });
}

}  // namespace isogate
