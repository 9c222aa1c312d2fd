#include "runner/resident/strays.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <csignal>
#include <functional>
#include <string>
#include <thread>

#include "runner/cgroup_detect.h"
#include "runner/fd.h"
#include "runner/tree.h"

namespace isogate::resident {
namespace {

constexpr std::chrono::milliseconds kPause{1};

void for_each_number(const char* directory, const std::function<void(int, const char*)>& visit) {
  const Fd own(::openat(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR* const stream = own ? ::fdopendir(::dup(own.get())) : nullptr;
  if (stream == nullptr) return;
  while (const dirent* entry = ::readdir(stream)) {
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') visit(own.get(), entry->d_name);
  }
  ::closedir(stream);
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
bool is_stray(pid_t pid) {
  siginfo_t info{};
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

bool is_stopped_supervisor(pid_t pid) {
  siginfo_t info{};
  if (is_stray(pid)) return false;
  return ::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOHANG | WNOWAIT | __WALL) == 0 &&
         info.si_pid == pid;
}

void reap_strays() {
  while (::waitpid(-1, nullptr, WNOHANG) > 0) {
  }
}

}  // namespace

std::vector<pid_t> own_children() {
  std::vector<pid_t> pids;
  if (raw_tree_walk() == TreeWalk::children) {
    for_each_number("/proc/self/task", [&](int tasks, const char* thread) {
      add_numbers(read_small_file(tasks, std::string(thread) + "/children"), pids);
    });
  } else {
    for_each_number("/proc", [&](int, const char* name) { add_numbers(name, pids); });
    std::erase_if(pids, [](pid_t pid) {
      siginfo_t info{};
      return ::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) != 0;
    });
  }
  return pids;
}

void Strays::adopt() { ::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); }

bool Strays::sweep(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  const TreeWalk walk = raw_tree_walk();
  const std::lock_guard lock(mutex_);
  for (;;) {
    reap_strays();
    std::vector<pid_t> strays = own_children();
    std::erase_if(strays, [](pid_t pid) { return !is_stray(pid); });
    if (strays.empty()) return true;
    for (const pid_t pid : strays) ::kill(pid, SIGSTOP);
    for (const pid_t pid : strays) raw_kill_descendants(pid, walk);
    for (const pid_t pid : strays) ::kill(pid, SIGKILL);
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(kPause);
  }
}

size_t Strays::rouse(bool kill) {
  const std::lock_guard lock(mutex_);
  size_t found = 0;
  for (const pid_t pid : own_children()) {
    if (!is_stopped_supervisor(pid)) continue;
    ++found;
    ::kill(pid, kill ? SIGKILL : SIGCONT);
  }
  return found;
}

}  // namespace isogate::resident
