#include "gateway/supervisor/child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "gateway/ipc/channel.h"
#include "lib/program.h"

namespace isogate::supervisor {
namespace {

constexpr int kControlFd = 3;

struct Passed {
  const char* name;
  const char* reason;
};

constexpr Passed kPassed[] = {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    {"ASAN_OPTIONS", "a sanitizer build"},
    {"LSAN_OPTIONS", "a sanitizer build"},
    {"TSAN_OPTIONS", "a sanitizer build"},
    {"UBSAN_OPTIONS", "a sanitizer build"},
#endif
    {"DOCKER_CERT_PATH", "how an Engine is found and spoken to"},
    {"DOCKER_CONFIG", "how an Engine is found and spoken to"},
    {"DOCKER_CONTEXT", "how an Engine is found and spoken to"},
    {"DOCKER_HOST", "how an Engine is found and spoken to"},
    {"DOCKER_TLS_VERIFY", "how an Engine is found and spoken to"},
    {"KUBECONFIG", "where a cluster is found"},
    {"KUBERNETES_SERVICE_HOST", "where a pod finds its API server"},
    {"KUBERNETES_SERVICE_PORT", "where a pod finds its API server"},
    {"TZ", "times in the log"},
};

void reset_signals() {
  for (int number = 1; number < NSIG; ++number)
    if (number != SIGKILL && number != SIGSTOP) (void)::signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)::sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Moves a descriptor above 3.
int high(int fd) { return ::fcntl(fd, F_DUPFD_CLOEXEC, kControlFd + 1); }

// In the child; returns only on failure, with errno.
void become(const ChildProgram& program, int control, std::vector<char*>& argv,
            std::vector<char*>& environment) {
  const int executable = high(program.executable);
  const int control_copy = high(control);
  const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (executable < 0 || control_copy < 0 || null < 0) return;
  reset_signals();
  if (::setsid() < 0 || ::chdir("/") != 0 || ::dup2(null, STDIN_FILENO) < 0) return;
  if (::dup2(program.output, STDOUT_FILENO) < 0 || ::dup2(program.output, STDERR_FILENO) < 0) return;
  if (::dup2(control_copy, kControlFd) < 0) return;
  if (::syscall(SYS_close_range, kControlFd + 1, ~0u, CLOSE_RANGE_CLOEXEC) != 0) return;
  ::fexecve(executable, argv.data(), environment.data());
}

Result<void> wait_for_exec(int report, pid_t pid, const std::string& role) {
  int error = 0;
  ssize_t n = 0;
  do n = ::read(report, &error, sizeof error);
  while (n < 0 && errno == EINTR);
  if (n == 0) return {};
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  return os_error("cannot start the process `" + role + "`", n == sizeof error ? error : EIO);
}

}  // namespace

std::vector<std::string> child_environment() {
  std::vector<std::string> environment = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                          "LANG=C.UTF-8"};
  for (const Passed& passed : kPassed)
    if (const char* value = std::getenv(passed.name); value != nullptr)
      environment.push_back(std::string(passed.name) + "=" + value);
  return environment;
}

Result<Child> start_child(const ChildProgram& program) {
  auto pair = ipc::make_socket_pair();
  if (!pair) return pair.error();
  auto report = make_pipe();
  if (!report) return report.error();
  // Between 0 and 3 the child's own descriptors would be overwritten by what dup2 puts there.
  Fd report_end(high(report->write.get()));
  if (!report_end) return os_error("cannot start a process", errno);
  report->write.reset();
  std::vector<std::string> arguments = program.argv, variables = child_environment();
  std::vector<char*> argv = pointers(arguments), environment = pointers(variables);
  const pid_t pid = ::fork();
  if (pid < 0) return os_error("cannot start a process", errno);
  if (pid == 0) {
    become(program, pair->theirs.get(), argv, environment);
    const int error = errno;
    (void)!::write(report_end.get(), &error, sizeof error);
    ::_exit(127);
  }
  report_end.reset();
  Child child{pid, watch_process(pid), std::move(pair->own)};
  const int unwatched = errno;
  std::string role = program.argv.size() > 1 ? program.argv[1] : program.argv[0];
  if (auto started = wait_for_exec(report->read.get(), pid, role); !started) return started.error();
  if (!child.pidfd) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return os_error("cannot watch a process (pidfd_open)", unwatched);
  }
  return child;
}

void kill_child(const Child& child) {
  (void)::syscall(SYS_pidfd_send_signal, child.pidfd.get(), SIGKILL, nullptr, 0);
}

std::string describe_end(int wait_status) {
  if (WIFEXITED(wait_status)) return "exit code " + std::to_string(WEXITSTATUS(wait_status));
  const int number = WTERMSIG(wait_status);
  const char* name = ::sigabbrev_np(number);
  return "signal " + std::to_string(number) + (name != nullptr ? " (SIG" + std::string(name) + ")" : "");
}

}  // namespace isogate::supervisor
