#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <vector>

#include "runner/fd.h"
#include "runner/uid_registry.h"
#include "runner/workspace_tree.h"

namespace isogate {
namespace {

constexpr int kRounds = 100;
constexpr long kRoundNs = 10'000'000;

bool lists_uid(const char* line, uint32_t uid) {
  for (int i = 0; i < 4; ++i) {
    char* end = nullptr;
    const unsigned long id = std::strtoul(line, &end, 10);
    if (end == line) return false;
    if (id == uid) return true;
    line = end;
  }
  return false;
}

// Alive and with this uid, by /proc/<pid>/status.
bool has_uid(int proc, const std::string& pid, uint32_t uid) {
  const Fd status(::openat(proc, (pid + "/status").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> text{};
  if (!status || ::read(status.get(), text.data(), text.size() - 1) <= 0) return false;
  const char* state = std::strstr(text.data(), "\nState:\t");
  const char* uids = std::strstr(text.data(), "\nUid:\t");
  if (state == nullptr || uids == nullptr) return false;
  const char letter = state[std::strlen("\nState:\t")];
  return letter != 'Z' && letter != 'X' && lists_uid(uids + std::strlen("\nUid:\t"), uid);
}

Result<std::vector<std::string>> pids_of(int proc, uint32_t uid) {
  std::vector<std::string> found;
  if (::lseek(proc, 0, SEEK_SET) < 0) return os_error("cannot list the processes", errno);
  for (DirReader reader; !reader.end();) {
    std::vector<DirReader::Name> names;
    if (const int code = reader.next(proc, names); code < 0)
      return os_error("cannot list the processes", -code);
    for (const auto& name : names)
      if (name.text[0] >= '1' && name.text[0] <= '9' && has_uid(proc, name.text, uid))
        found.push_back(name.text);
  }
  return found;
}

Result<Fd> open_proc() {
  Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc) return os_error("cannot list the processes", errno);
  return proc;
}

// The pidfd is taken before the uid is looked at again, so that a reused pid is never hit.
void kill_if(int proc, const std::string& pid, uint32_t uid) {
  const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, std::atoi(pid.c_str()), 0)));
  if (process && has_uid(proc, pid, uid))
    ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

}  // namespace

Result<uint32_t> count_processes(uint32_t uid) {
  auto proc = open_proc();
  if (!proc) return proc.error();
  auto pids = pids_of(proc->get(), uid);
  if (!pids) return pids.error();
  return static_cast<uint32_t>(pids->size());
}

bool uid_runs(uint32_t uid) {
  errno = 0;
  return ::getpriority(PRIO_USER, uid) != -1 || errno != ESRCH;
}

Result<void> end_processes(uint32_t uid) {
  if (uid == 0 || uid == ::geteuid())
    return invalid("refusing to end every process of the gateway's own user");
  auto proc = open_proc();
  if (!proc) return proc.error();
  for (int round = 0; round < kRounds; ++round) {
    auto pids = pids_of(proc->get(), uid);
    if (!pids) return pids.error();
    if (pids->empty()) return {};
    for (const std::string& pid : *pids) kill_if(proc->get(), pid, uid);
    const timespec pause{0, kRoundNs};
    ::nanosleep(&pause, nullptr);
  }
  return Error{ISOGATE_UNAVAILABLE, 0, "processes of the sandbox could not be ended"};
}

}  // namespace isogate
