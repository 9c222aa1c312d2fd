#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "runner/command_runner.h"
#include "runner/supervise_watch.h"

namespace isogate {
namespace {

// tree.cc names processes by what /proc says.
bool proc_is_ours() {
  std::array<char, 16> link{};
  const ssize_t size = ::readlink("/proc/self", link.data(), link.size() - 1);
  return size > 0 && std::to_string(::getpid()) == std::string(link.data(), static_cast<size_t>(size));
}

bool child_signal_is_ignored() {
  struct sigaction action {};
  if (::sigaction(SIGCHLD, nullptr, &action) != 0) return true;
  return action.sa_handler == SIG_IGN || (action.sa_flags & SA_NOCLDWAIT) != 0;
}

}  // namespace

CommandRunner::CommandRunner(RunnerOptions options) : options_(std::move(options)) {
  open_descriptors();
  walk_ = raw_tree_walk();
  if (options_.use_cgroups && !broken_) make_cgroups();
  const bool leaf = cgroups_ != nullptr && cgroups_->has_leaf();
  abilities_.tree_kill = leaf ? "cgroup2 leaf" : "supervisor";
  if (!leaf && !broken_ && !proc_is_ours()) {
    broken_ = unsupported(
        "cannot run programs: /proc is not that of this process, so their trees could not be killed");
  }
  if (auto pty = open_pty({}, 0, 0)) {
    abilities_.capabilities |= ISOGATE_CAP_PTY;
  } else {
    lack("terminal: " + pty.error().message);
  }
  if (broken_) lack(broken_->message);
}

CommandRunner::~CommandRunner() {
  if (watcher_ > 0) {
    ::kill(watcher_, SIGKILL);
    while (::waitpid(watcher_, nullptr, __WALL) < 0 && errno == EINTR) {
    }
  }
  reap_strays();
}

void CommandRunner::open_descriptors() {
  if (auto started = rescuer_.start(); !started) broken_ = started.error();
  null_device_ = Fd(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!null_device_) broken_ = os_error("cannot run programs: cannot open `/dev/null`", errno);
  host_pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (!host_pidfd_) broken_ = os_error("cannot run programs: pidfd_open (Linux 5.3) failed", errno);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {  // a host's own limits are no program's
    hard_files_ = std::min<uint64_t>(files.rlim_max, kProgramFiles);
    soft_files_ = std::min<uint64_t>(hard_files_, kProgramSoftFiles);
  }
  sigset_t child{};
  sigemptyset(&child);
  sigaddset(&child, SIGCHLD);
  child_signals_ = Fd(::signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_signals_) broken_ = os_error("cannot run programs: signalfd failed", errno);
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

// Proven by doing it: a child born in a leaf, which ends by itself. A cgroup that has once been killed kills
// its children at birth on some kernels, and so do leaves below such a one.
std::string CommandRunner::try_leaf() {
  auto leaf = cgroups_->make_leaf();
  if (!leaf) return leaf.error().message;
  auto mapped = stacks_.take();
  if (!mapped) return mapped.error().message;
  const BorrowedStack stack(stacks_, *mapped);
  CgroupSlot slot;
  slot.leaf = std::move(*leaf);
  Supervision s;
  plan(s, Command(Site::host()), slot, *stack);
  s.plan.instead = raw_succeed;
  supervise(s, *stack);
  const bool lived = s.result.spawn_error == 0 && s.result.ended && s.result.status == 0;
  slot.leaf->pooled = false;
  cgroups_->release(std::move(slot));
  if (s.result.spawn_error != 0) {
    return os_error("cannot start a process in a leaf", static_cast<int>(-s.result.spawn_error)).message;
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
  auto mapped = stacks_.take();
  if (!mapped) return mapped.error().message;
  const BorrowedStack stack(stacks_, *mapped);
  const long pid = raw_start_watcher(watch, stack->supervisor, stack->program, SpawnStack::kSize);
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

}  // namespace isogate
