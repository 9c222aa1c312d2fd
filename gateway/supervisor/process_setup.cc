#include "gateway/supervisor/process_setup.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <string>
#include <thread>

#include "gateway/base/budgets.h"
#include "gateway/base/privileges.h"

namespace isogate::supervisor {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD};
constexpr auto kOrphanGrace = std::chrono::seconds(1);
constexpr auto kOrphanDeath = budget::kOrphans - kOrphanGrace;

rlim_t most_files() {
  rlim_t number = 0;
  std::ifstream("/proc/sys/fs/nr_open") >> number;
  return std::min<rlim_t>(kMostFiles, number);
}

Result<void> raise_open_files() {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return os_error("cannot read RLIMIT_NOFILE", errno);
  // An exec takes a dozen descriptors. Only root may raise the hard limit, to fs.nr_open at most.
  const rlim_t wanted = most_files();
  const rlimit more{wanted, wanted};
  if (files.rlim_max < wanted && ::setrlimit(RLIMIT_NOFILE, &more) == 0) return {};
  if (files.rlim_max < kLeastFiles)
    return Error{ISOGATE_RESOURCE_EXHAUSTED, EMFILE,
                 "RLIMIT_NOFILE is " + std::to_string(files.rlim_max) +
                     ", too few for one tenant beside another: " + std::to_string(kLeastFiles) +
                     " at least (LimitNOFILE=, ulimit -Hn)"};
  files.rlim_cur = files.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0) return os_error("cannot raise RLIMIT_NOFILE", errno);
  return {};
}

Result<void> forbid_core_dumps() {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return os_error("cannot forbid core dumps", errno);
  return {};
}

}  // namespace

std::vector<pid_t> children() {
  std::ifstream listed("/proc/self/task/" + std::to_string(::gettid()) + "/children");
  std::vector<pid_t> pids;
  for (pid_t pid = 0; listed >> pid;) pids.push_back(pid);
  return pids;
}

Result<void> prepare_process() {
  if (auto clean = check_loader_environment(); !clean) return clean;
  if (auto raised = raise_open_files(); !raised) return raised;
  if (auto forbidden = forbid_core_dumps(); !forbidden) return forbidden;
  ::umask(022);
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return os_error("cannot become a subreaper", errno);
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return os_error("cannot make the process undumpable", errno);
  return {};
}

Result<Fd> take_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kSignals) {
    (void)::signal(number, SIG_DFL);  // a signal that the parent ignored would never arrive
    sigaddset(&set, number);
  }
  (void)::signal(SIGPIPE, SIG_IGN);
  if (::sigprocmask(SIG_BLOCK, &set, nullptr) != 0) return os_error("cannot block signals", errno);
  Fd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd) return os_error("cannot make a signalfd", errno);
  return fd;
}

std::vector<int> pending_signals(int signal_fd) {
  std::vector<int> numbers;
  signalfd_siginfo info{};
  while (::read(signal_fd, &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

std::vector<Ended> reap() {
  std::vector<Ended> all;
  int status = 0;
  for (pid_t pid = 0; (pid = ::waitpid(-1, &status, WNOHANG | __WALL)) > 0;) all.push_back({pid, status});
  return all;
}

int end_orphans(const std::vector<pid_t>& spared) {
  const auto start = std::chrono::steady_clock::now();
  std::set<pid_t> killed;  // one may need more than one turn to end
  while (true) {
    (void)reap();
    const auto count = static_cast<int>(killed.size());
    if (::waitpid(-1, nullptr, WNOHANG | __WALL) < 0 && errno == ECHILD) return count;
    const auto waited = std::chrono::steady_clock::now() - start;
    if (waited > kOrphanDeath) return count;
    std::vector<pid_t> left = children();
    std::erase_if(left,
                  [&](pid_t pid) { return std::find(spared.begin(), spared.end(), pid) != spared.end(); });
    if (left.empty() && !spared.empty()) return count;
    if (waited > kOrphanGrace)
      for (const pid_t pid : left)
        if (::kill(pid, SIGKILL) == 0) killed.insert(pid);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace isogate::supervisor
