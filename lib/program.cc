#include "lib/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <optional>

namespace isogate {
namespace {

using How = ProgramEnd::How;

Result<pid_t> spawn(Program& program, int output) {
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  if (program.directory >= 0) ::posix_spawn_file_actions_addfchdir_np(&actions, program.directory);
  const int count = static_cast<int>(program.files.size());
  for (int fd = 0; fd < count; ++fd) {
    const int file = program.files[fd] == Program::kOutput ? output : program.files[fd];
    if (file >= 0)
      ::posix_spawn_file_actions_adddup2(&actions, file, fd);
    else
      ::posix_spawn_file_actions_addopen(&actions, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY, 0);
  }
  ::posix_spawn_file_actions_addclosefrom_np(&actions, count);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &all);
  ::posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  pid_t pid = -1;
  const int failed = ::posix_spawnp(&pid, program.path.c_str(), &actions, &attributes,
                                    pointers(program.arguments).data(), pointers(program.environment).data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return os_error("cannot run `" + program.path + "`", failed);
  return pid;
}

// The next bytes of its output, `most` at most, and how many; `output` is -1 at the end. nullopt: it wrote
// more than it may.
std::optional<size_t> take(const Program& program, int& output, size_t most, std::string& text) {
  char buffer[16384];
  const ssize_t got = ::read(output, buffer, std::min(most, sizeof buffer));
  if (got < 0 && errno == EINTR) return 0;
  if (got <= 0) output = -1;
  const size_t bytes = got > 0 ? static_cast<size_t>(got) : 0, room = program.most_output - text.size();
  text.append(buffer, std::min(bytes, room));
  if (bytes > room && !program.drops_output) return std::nullopt;
  return bytes;
}

How read_output(const Program& program, int output, int process, std::string& text) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + program.time;
  pollfd watch[] = {{output, POLLIN, 0}, {process, POLLIN, 0}, {program.cancel_fd, POLLIN, 0}};
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now());
    if (left.count() <= 0) return How::kLate;
    if (::poll(watch, 3, static_cast<int>(left.count())) <= 0) continue;
    if (watch[2].revents != 0) return How::kCancelled;
    if (watch[1].revents != 0) break;
    if (!take(program, watch[0].fd, SIZE_MAX, text)) return How::kFlooded;
  }
  // All that it wrote is in the pipe now. Others may go on to write.
  int left = 0;
  if (::ioctl(output, FIONREAD, &left) != 0) left = 0;
  while (left > 0 && watch[0].fd >= 0) {
    const auto bytes = take(program, watch[0].fd, static_cast<size_t>(left), text);
    if (!bytes) return How::kFlooded;
    left -= static_cast<int>(*bytes);
  }
  return How::kEnded;
}

}  // namespace

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

Fd watch_process(pid_t pid) { return Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))); }

int ProgramEnd::exit_code() const {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

Result<ProgramEnd> run_program(Program program) {
  auto pipe = make_pipe();
  if (!pipe) return pipe.error();
  const auto pid = spawn(program, pipe->write.get());
  if (!pid) return pid.error();
  pipe->write.reset();
  const Fd process = watch_process(*pid);
  const int watch_error = process ? 0 : errno;
  ProgramEnd end;
  if (process) end.how = read_output(program, pipe->read.get(), process.get(), end.output);
  ::kill(-*pid, SIGKILL);
  ::kill(*pid, SIGKILL);
  pid_t ended = -1;
  while ((ended = ::waitpid(*pid, &end.wait_status, 0)) < 0 && errno == EINTR) {
  }
  if (ended < 0) return os_error("cannot wait for `" + program.path + "`", errno);
  if (!process) return os_error("cannot watch `" + program.path + "`", watch_error);
  return end;
}

}  // namespace isogate
