#include "runner/exec/command_result.h"

#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cerrno>
#include <system_error>

#include "lib/sigpipe.h"

namespace isogate {
namespace {

// Never blocks: a pipe that polls writable takes PIPE_BUF bytes.
void tell_stderr(const Command& command, int os_errno) {
  const int fd = command.pty ? command.stdout_fd : command.stderr_fd;
  pollfd slot = {fd, POLLOUT, 0};
  if (fd < 0 || ::poll(&slot, 1, 0) != 1 || (slot.revents & POLLOUT) == 0) return;
  std::string line = "isogate: cannot run `" + command.argv.front().substr(0, 2048) +
                     "`: " + std::generic_category().message(os_errno) + (command.pty ? "\r\n" : "\n");
  const SigpipeGuard guard;
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
}

// ru_maxrss starts at the peak of the address space from which the program was exec'd, which is this process;
// an init is small.
uint64_t known_peak(uint64_t max_rss_kib) {
  rusage own{};
  if (::getrusage(RUSAGE_SELF, &own) != 0) return 0;
  return max_rss_kib > static_cast<uint64_t>(own.ru_maxrss) ? max_rss_kib * 1024 : 0;
}

Result<Ending> not_started(const Command& command, const SpawnReport& report, Ending ending) {
  if (report.stage != kStageExec) return describe_failure(report, command.identity);
  if (report.os_errno == E2BIG) return Error{ISOGATE_INVALID_ARGUMENT, E2BIG, kCommandTooLong};
  ending.started = false;
  ending.os_errno = report.os_errno;
  ending.exit_code = report.os_errno == ENOENT ? 127 : 126;
  ending.term_signal = 0;
  tell_stderr(command, report.os_errno);
  return ending;
}

Ending ending_from(const RunLoopResult& result, const CgroupSlot& slot) {
  Ending ending;
  ending.killed = result.killed;
  ending.left_behind = result.left_behind;
  ending.oom_killed =
      result.out_of_memory || (slot.oom_events && raw_oom_kills(slot.oom_events.get()) > slot.oom_before);
  if (!result.ended) {  // killed, and held back by the kernel
    ending.term_signal = SIGKILL;
  } else if (WIFSIGNALED(result.status)) {
    ending.term_signal = WTERMSIG(result.status);
  } else {
    ending.exit_code = WEXITSTATUS(result.status);
  }
  ending.wall_ns = result.ended ? result.end_ns - result.start_ns : 0;
  ending.cpu_ns = result.cpu_ns;
  ending.max_rss_bytes = result.from_init ? result.max_rss_kib * 1024 : known_peak(result.max_rss_kib);
  return ending;
}

}  // namespace

bool leaf_was_at_fault(const RunLoop& loop, const SpawnReport& report, const CgroupSlot& slot) {
  if (slot.leaf == nullptr || !slot.leaf->pooled) return false;
  const long error = -loop.result.spawn_error;
  if (error != 0) return error != EAGAIN && error != ENOMEM;
  return loop.result.ended && !loop.result.killed && report.stage == kStageBorn &&
         WIFSIGNALED(loop.result.status);
}

Result<Ending> ending_of(const Command& command, const RunLoop& loop, const SpawnReport& report,
                         const CgroupSlot& slot) {
  const RunLoopResult& result = loop.result;
  if (result.spawn_error != 0) {
    return os_error("cannot start a process", static_cast<int>(-result.spawn_error));
  }
  if (!result.finished) return Error{ISOGATE_LOST, 0, "the reaper of the program was killed"};
  if (result.status_lost) return Error{ISOGATE_LOST, ECHILD, "somebody else took the program's exit status"};
  const Ending ending = ending_from(result, slot);
  if (report.os_errno != 0) return not_started(command, report, ending);
  if (report.stage != kStageExec && !ending.killed && !ending.oom_killed) {
    return describe_failure(report, command.identity);
  }
  return ending;
}

}  // namespace isogate
