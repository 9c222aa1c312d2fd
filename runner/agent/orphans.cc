#include "runner/agent/orphans.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <functional>
#include <string>

#include "lib/fd.h"
#include "runner/cgroup/cgroup_detect.h"
#include "runner/exec/tree/tree.h"
#include "runner/files/workspace_tree.h"

namespace isogate::agent {
namespace {

constexpr int kSweepPauseMs = 1, kRefreshMs = 10;
constexpr size_t kMostWatched = 16;
constexpr std::chrono::milliseconds kContinueAfter{25}, kKillAfter{100};
constexpr int kMostUnseen = 10;  // failed looks at /proc, before another measure is taken

// False: it cannot be read.
bool for_each_number(const char* directory, const std::function<void(int, const char*)>& visit) {
  const Fd own(::openat(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!own) return false;
  each_name(own.get(), [&](const auto& name) {
    if (name.text[0] >= '1' && name.text[0] <= '9') visit(own.get(), name.text.c_str());
  });
  return true;
}

void add_numbers(std::string_view text, std::vector<pid_t>& pids) {
  for (const char *at = text.data(), *end = at + text.size(); at < end;) {
    pid_t pid = 0;
    const auto [stop, error] = std::from_chars(at, end, pid);
    if (error == std::errc() && pid > 0) pids.push_back(pid);
    at = stop + 1;
  }
}

// Alive, and not a clone child.
bool is_orphan(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

// Until one of the first has ended; not for long, because no event announces that a process becomes an orphan
// meanwhile.
void wait_for_one(const std::vector<pid_t>& killed) {
  std::array<Fd, kMostWatched> processes;
  std::array<pollfd, kMostWatched> slots{};
  const size_t count = std::min(killed.size(), kMostWatched);
  bool all = count > 0;
  for (size_t i = 0; i < count; ++i) {
    processes[i] = Fd(static_cast<int>(::syscall(SYS_pidfd_open, killed[i], 0)));
    slots[i] = {processes[i].get(), POLLIN, 0};
    all = all && processes[i];
  }
  ::poll(slots.data(), count, all ? kRefreshMs : kSweepPauseMs);
}

bool is_stopped_reaper(pid_t pid) {
  siginfo_t info{};
  if (is_orphan(pid)) return false;
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT | __WALL) == 0 &&
         info.si_pid == pid;
}

void reap_orphans() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

bool has_orphans() {
  siginfo_t info{};
  return ::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 || errno != ECHILD;
}

}  // namespace

std::optional<std::vector<pid_t>> own_children() {
  std::vector<pid_t> pids;
  bool seen = true;
  if (raw_tree_walk() == TreeWalk::children) {
    seen = for_each_number("/proc/self/task", [&](int tasks, const char* thread) {
      add_numbers(read_small_file(tasks, std::string(thread) + "/children"), pids);
    });
  } else {
    seen = for_each_number("/proc", [&](int, const char* name) { add_numbers(name, pids); });
    std::erase_if(pids, [](pid_t pid) {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0;
    });
  }
  if (!seen) return std::nullopt;
  return pids;
}

void Orphans::adopt() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

void Orphans::while_nothing_runs(const std::function<void()>& work) {
  if (const std::unique_lock alone(runs_, std::try_to_lock); alone) work();
}

// False: they cannot be found that way.
bool Orphans::kill_unseen() {
  if (::getpid() != 1) return false;
  const std::unique_lock alone(runs_, std::try_to_lock);
  return alone && ::kill(-1, SIGKILL) == 0;
}

bool Orphans::sweep(std::chrono::milliseconds patience) {
  if (!has_orphans()) return true;
  const auto until = std::chrono::steady_clock::now() + patience;
  const TreeWalk walk = raw_tree_walk();
  const std::lock_guard lock(mutex_);
  for (int unseen = 0;;) {
    reap_orphans();
    if (!has_orphans()) return true;
    auto orphans = own_children();
    if (orphans) std::erase_if(*orphans, [](pid_t pid) { return !is_orphan(pid); });
    bool reached = orphans && !orphans->empty();
    if (reached) {
      for (const pid_t pid : *orphans) ::kill(pid, SIGSTOP);
      for (const pid_t pid : *orphans) reached = raw_kill_descendants(pid, walk) >= 0 && reached;
      for (const pid_t pid : *orphans) ::kill(pid, SIGKILL);
    }
    const std::vector<pid_t> killed = reached ? *orphans : std::vector<pid_t>();
    unseen = reached ? 0 : unseen + 1;
    if (unseen >= kMostUnseen) reached = kill_unseen();
    if (std::chrono::steady_clock::now() < until) {
      wait_for_one(killed);
      continue;
    }
    if (unseen >= kMostUnseen && !reached && ::getpid() == 1) ::_exit(1);
    return false;
  }
}

void Orphans::continue_reapers(std::chrono::steady_clock::duration overdue) {
  if (overdue <= kContinueAfter) return;
  const std::lock_guard lock(mutex_);
  for (const pid_t pid : own_children().value_or(std::vector<pid_t>()))
    if (is_stopped_reaper(pid)) ::kill(pid, overdue > kKillAfter ? SIGKILL : SIGCONT);
}

}  // namespace isogate::agent
