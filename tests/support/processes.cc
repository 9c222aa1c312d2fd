#include "tests/support/processes.h"

#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "lib/fd.h"
#include "runner/exec/apart.h"
#include "tests/support/api.h"

namespace isogate::test {
namespace {

std::vector<pid_t> all_processes() {
  std::vector<pid_t> pids;
  DIR* dir = ::opendir("/proc");
  if (dir == nullptr) return pids;
  while (dirent* entry = ::readdir(dir))
    if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9') pids.push_back(std::atoi(entry->d_name));
  ::closedir(dir);
  return pids;
}

// Reads a file in /proc, whose process may end meanwhile.
std::string text_of(pid_t pid, const char* name) {
  Fd file(::open(("/proc/" + std::to_string(pid) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  char bytes[8192];
  for (ssize_t n = 0; file && (n = ::read(file.get(), bytes, sizeof bytes)) > 0;)
    text.append(bytes, static_cast<size_t>(n));
  return text;
}

struct Stat {
  char state = 'X';
  pid_t parent = -1;
};

Stat stat_of(pid_t pid) {
  const std::string text = text_of(pid, "stat");
  const size_t end = text.rfind(')');
  Stat stat;
  if (end == std::string::npos) return stat;
  std::istringstream(text.substr(end + 1)) >> stat.state >> stat.parent;
  return stat;
}

pid_t child_with(const Gateway& gateway, const std::string& arguments) {
  for (pid_t pid : children_of(gateway.pid())) {
    const std::string line = command_line(pid);
    if (line.size() >= arguments.size() && line.substr(line.size() - arguments.size()) == arguments)
      return pid;
  }
  return -1;
}

}  // namespace

bool alive(pid_t pid) {
  const char state = stat_of(pid).state;
  return state != 'X' && state != 'Z';
}

bool stands_still(pid_t pid) {
  std::error_code gone;
  std::filesystem::directory_iterator tasks("/proc/" + std::to_string(pid) + "/task", gone);
  for (; !gone && tasks != std::filesystem::directory_iterator(); tasks.increment(gone)) {
    const std::string stat = read_whole(tasks->path().string() + "/stat");
    if (!stat.empty() && stat.find(") T ") == std::string::npos && stat.find(") Z ") == std::string::npos)
      return false;
  }
  return true;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  for (pid_t each : all_processes())
    if (stat_of(each).parent == pid) children.push_back(each);
  return children;
}

std::vector<pid_t> descendants_of(pid_t pid) {
  std::vector<pid_t> found = children_of(pid);
  for (size_t i = 0; i < found.size(); ++i)
    for (pid_t child : children_of(found[i])) found.push_back(child);
  return found;
}

std::string command_line(pid_t pid) {
  std::string text = text_of(pid, "cmdline");
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

std::string status_field(pid_t pid, const std::string& name) {
  std::istringstream lines(text_of(pid, "status"));
  std::string line;
  while (std::getline(lines, line)) {
    if (line.rfind(name + ":", 0) != 0) continue;
    const size_t start = line.find_first_not_of(" \t", name.size() + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return {};
}

long kib_bound(long kib) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 64 * kib;
#else
  return kib;
#endif
}

double cpu_seconds(pid_t pid) {
  const std::string text = text_of(pid, "stat");
  const size_t end = text.rfind(')');  // of the name, which may have spaces
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

long resident_kib(pid_t pid) {
  const std::string text = status_field(pid, "VmRSS");
  return text.empty() ? -1 : std::stol(text);
}

std::vector<std::pair<int, std::string>> open_files(pid_t pid) {
  std::vector<std::pair<int, std::string>> files;
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return files;
  while (dirent* entry = ::readdir(dir)) {
    if (entry->d_name[0] == '.') continue;
    char target[4096];
    const ssize_t n = ::readlink((folder + "/" + entry->d_name).c_str(), target, sizeof target);
    if (n > 0) files.emplace_back(std::atoi(entry->d_name), std::string(target, static_cast<size_t>(n)));
  }
  ::closedir(dir);
  return files;
}

pid_t front_of(const Gateway& gateway) { return child_with(gateway, " _front"); }
pid_t host_of(const Gateway& gateway, const std::string& backend) {
  return child_with(gateway, " _host " + backend);
}

std::vector<GroupBase> group_bases_of(pid_t host) {
  std::map<std::string, GroupBase> bases;
  const std::string name = "/isogate." + std::to_string(host) + ".";
  for (const auto& [fd, path] : open_files(host)) {
    const size_t at = path.starts_with("/sys/fs/cgroup/") ? path.find(name) : std::string::npos;
    if (at == std::string::npos || path.find('/', at + 1) != std::string::npos) continue;
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0) bases[path] = {path, status.st_ino};
  }
  std::vector<GroupBase> found;
  for (auto& [path, base] : bases) found.push_back(std::move(base));
  return found;
}

bool there(const GroupBase& base) {
  struct stat status {};
  return ::stat(base.path.c_str(), &status) == 0 && status.st_ino == base.inode;
}

std::string new_mark() {
  static std::random_device random;
  static std::atomic<unsigned> count{0};
  return "8" + std::to_string(100000 + random() % 900000) + std::to_string(1000 + count++ % 9000);
}

std::vector<std::string> stubborn_commands(const std::string& mark) {
  std::vector<std::string> commands{
      "trap '' TERM INT HUP; while :; do sleep MARK; done",
      "setsid -f sh -c 'trap \"\" TERM HUP; sleep MARK; sleep MARK'; ( ( setsid sleep MARK & ) & ); sleep "
      "MARK",
      "for i in $(seq 60); do ( setsid sh -c 'sleep MARK & sleep MARK' & ); done; sleep MARK"};
  for (std::string& command : commands)
    for (size_t at; (at = command.find("MARK")) != std::string::npos;) command.replace(at, 4, mark);
  return commands;
}

std::vector<pid_t> marked(const std::string& mark) {
  std::vector<pid_t> found;
  for (pid_t pid : all_processes())
    if (pid != ::getpid() && command_line(pid).find(mark) != std::string::npos && alive(pid))
      found.push_back(pid);
  return found;
}

bool gone_within(double seconds, const std::string& mark) {
  return eventually(seconds, [&] { return marked(mark).empty(); });
}

bool there_within(double seconds, const std::string& mark, size_t count) {
  return eventually(seconds, [&] { return marked(mark).size() >= count; });
}

bool is_root() { return ::geteuid() == 0; }

std::string root_gateway_obstacle() {
  if (!is_root()) return "only root can start a gateway that separates its processes";
  for (const char* user : {"isogate", "isogate-host"})
    if (::getpwnam(user) == nullptr)
      return std::string("there is no user `") + user + "`: run scripts/install-deps.sh";
  return {};
}

std::string namespace_obstacle() {
  if (!root_gateway_obstacle().empty()) return root_gateway_obstacle();
  // A process that enters its own namespace gets the namespace's root.
  const auto tried = run_apart([]() -> Result<void> {
    struct stat before {
    }, after{};
    const Fd own(::open("/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
    if (!own || ::stat("/", &before) != 0 || ::setns(own.get(), CLONE_NEWNS) != 0 || ::stat("/", &after) != 0)
      return os_error("cannot enter a mount namespace", errno);
    if (before.st_dev == after.st_dev && before.st_ino == after.st_ino) return {};
    return Error{ISOGATE_UNAVAILABLE, 0, "in a chroot no mount namespace has its own root"};
  });
  return tried ? "" : tried.error().message;
}

void as_user(uid_t uid, const std::function<void()>& work) {
  std::exception_ptr failure;
  std::thread thread([&] {
    try {
      if (::syscall(SYS_setresgid, -1, uid, -1) != 0 || ::syscall(SYS_setresuid, -1, uid, -1) != 0)
        throw std::runtime_error("cannot become uid " + std::to_string(uid));
      work();
    } catch (...) {
      failure = std::current_exception();
    }
  });
  thread.join();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace isogate::test
