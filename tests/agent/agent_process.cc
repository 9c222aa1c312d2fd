#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "tests/agent/peer.h"
#include "tests/support/processes.h"
#include "tests_dirs.h"

namespace isogate::test {
namespace {

constexpr uid_t kStranger = 61000;
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr mode_t kProgramMode = 0555;  // the sanitizers read their own program
#else
constexpr mode_t kProgramMode = 0111;
#endif

// As engines set up a container: nothing of the host is writable except what is below `writable`.
std::string enclosing_script(const std::string& writable) {
  return "mount --make-rprivate / && mount --bind " + writable + " " + writable +
         " && mount -o remount,bind,ro / && mount -t proc -o hidepid=2 proc /proc && mount -t tmpfs none "
         "/dev/pts"
         " && exec setpriv --reuid " +
         std::to_string(kStranger) + " --regid " + std::to_string(kStranger) +
         " --clear-groups --bounding-set -all --no-new-privs \"$@\"";
}

std::vector<std::string> command_of(const Start& start, const std::string& binary,
                                    const std::string& workspace) {
  std::vector<std::string> argv;
  if (start.hidden) {
    argv = {"unshare", "-m", "-p", "-f", "--kill-child", "sh", "-c", enclosing_script(workspace), "sh"};
  } else if (start.first_process) {
    argv = {"unshare", "-r", "-p", "-f", "--mount-proc", "--kill-child"};
  }
  argv.push_back(binary);
  return argv;
}

void limit_processes(int most) {
  const rlimit limit = {static_cast<rlim_t>(most), static_cast<rlim_t>(most)};
  if (most > 0) ::setrlimit(RLIMIT_NPROC, &limit);
}

void join(const std::string& tasks) {
  const Fd file(tasks.empty() ? -1 : ::openat(AT_FDCWD, tasks.c_str(), O_WRONLY | O_CLOEXEC));
  if (file && ::write(file.get(), "0", 1) != 1) ::_exit(125);
}

pid_t start_program(const std::vector<std::string>& arguments, const Start& start, int in = -1,
                    int out = -1) {
  const uid_t uid = start.unprivileged && !start.hidden ? kStranger : 0;
  std::vector<char*> argv;
  for (const auto& one : arguments) argv.push_back(const_cast<char*>(one.c_str()));
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  if (in >= 0) ::dup2(in, 0);
  if (out >= 0) ::dup2(out, 1);
  join(start.memory_group);
  limit_processes(start.max_processes);
  if (uid != 0 && (::setgid(uid) != 0 || ::setuid(uid) != 0)) ::_exit(126);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

bool reap(pid_t& pid, int& status, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (pid > 0 && ::waitpid(pid, &status, WNOHANG) != pid) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  pid = -1;
  return true;
}

void end(pid_t& pid) {
  int status = 0;
  if (pid > 0) ::kill(pid, SIGKILL);
  reap(pid, status, 10);
}

}  // namespace

std::string runner_binary() { return std::string(ISOGATE_BUILD_DIR) + "/bin/isogate-runner"; }

std::string obstacle(const Start& start) {
  if ((start.unprivileged || start.hidden) && !is_root()) return "needs root to be somebody else";
  if (start.first_process && std::system("unshare -r -p -f --mount-proc true 2>/dev/null") != 0)
    return "this host cannot create user and pid namespaces";
  if (start.hidden &&
      std::system("unshare -m -p -f sh -c 'mount -t proc -o hidepid=2 proc /proc' 2>/dev/null") != 0)
    return "this host does not permit mounting a /proc";
  return "";
}

AgentProcess::AgentProcess(const Start& start) : first_process_(start.first_process || start.hidden) {
  workspace_ = directory_.path() + "/workspace";
  std::string binary = runner_binary();
  EXPECT_EQ(::mkdir(workspace_.c_str(), 0755), 0);
  if (start.unprivileged || start.hidden) {
    EXPECT_EQ(::chown(workspace_.c_str(), kStranger, kStranger), 0);
    std::ifstream from(binary, std::ios::binary);
    std::ofstream(directory_.path() + "/runner", std::ios::binary) << from.rdbuf();
    binary = directory_.path() + "/runner";
    EXPECT_EQ(::chmod(binary.c_str(), kProgramMode), 0);
  }
  open_listener();
  std::vector<std::string> argv = command_of(start, binary, workspace_);
  argv.insert(argv.end(), {"dial", directory_.path() + "/socket", "--workspace", workspace_});
  child_ = start_program(argv, start);
}

void AgentProcess::open_listener() {
  const std::string path = directory_.path() + "/socket", before = path + ".new";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  before.copy(address.sun_path, sizeof address.sun_path - 1);
  listener_ = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::chmod(before.c_str(), 0777), 0);
  EXPECT_EQ(::listen(listener_.get(), 16), 0);
  EXPECT_EQ(::rename(before.c_str(), path.c_str()), 0);
}

AgentProcess::~AgentProcess() {
  if (first_process_ && child_ > 0 && pid() > 0) ::kill(pid(), SIGKILL);
  end(child_);
}

Peer AgentProcess::accept_silently(double seconds) {
  pollfd slot = {listener_.get(), POLLIN, 0};
  if (::poll(&slot, 1, static_cast<int>(seconds * 1000)) != 1) {
    ADD_FAILURE() << "the runner does not dial";
    return {};
  }
  return {Fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC)), Fd()};
}

Peer AgentProcess::accept(double seconds) {
  Peer peer = accept_silently(seconds);
  EXPECT_TRUE(peer.hello().has_value());
  return peer;
}

pid_t AgentProcess::pid() const {
  if (!first_process_) return child_;
  const auto below = children_in(child_);
  return below.empty() ? -1 : below.front();
}

void AgentProcess::signal(int number) const { ::kill(pid(), number); }

bool AgentProcess::ended(double seconds) { return reap(child_, status_, seconds); }

StdioAgent::StdioAgent(bool pipes) {
  const std::vector<std::string> argv = {runner_binary(), "stdio", "--workspace", workspace.path()};
  if (pipes) {
    auto in = make_pipe(), out = make_pipe();
    child_ = start_program(argv, {}, in->read.get(), out->write.get());
    peer = Peer(std::move(out->read), std::move(in->write));
  } else {
    int ends[2] = {};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const Fd theirs(ends[1]);
    child_ = start_program(argv, {}, theirs.get(), theirs.get());
    peer = Peer(Fd(ends[0]), Fd());
  }
  EXPECT_TRUE(peer.hello().has_value());
}

StdioAgent::~StdioAgent() { end(child_); }

bool StdioAgent::ended(double seconds) {
  int status = 0;
  return reap(child_, status, seconds) && WIFEXITED(status);
}

bool limit_files(pid_t pid, uint64_t most) {
  rlimit limit{};
  if (::prlimit(pid, RLIMIT_NOFILE, nullptr, &limit) != 0) return false;
  limit.rlim_cur = std::min<rlim_t>(most, limit.rlim_max);
  return ::prlimit(pid, RLIMIT_NOFILE, &limit, nullptr) == 0;
}

std::vector<pid_t> children_in(pid_t pid) { return children_of(pid); }

char state_of(pid_t pid) {
  const std::string text = status_field(pid, "State");
  return text.empty() ? '\0' : text.front();
}

}  // namespace isogate::test
