#include "runner/agent/calls/exec_job.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "runner/exec/abi_exec.h"

namespace isogate::agent {
namespace {

constexpr std::chrono::milliseconds kSweepPatience{200};
constexpr std::chrono::milliseconds kLostPatience{2000};  // after its reaper was killed
constexpr int kKilledStatus = 128 + SIGKILL;              // what a shell returns for a killed child

Error crowded(Error error) {
  if (error.os_errno == EAGAIN) error.message += " (is this sandbox's limit on processes, pids, reached?)";
  return error;
}

}  // namespace

Result<void> ExecJob::open() {
  auto control = make_pipe(NonBlocking::kWrite);
  if (!control) return control.error();
  control_ = std::move(*control);
  return {};
}

Result<Command> ExecJob::command(Fd& directory, int cancel_fd) {
  if (order_.too_many)
    return Error{ISOGATE_INVALID_ARGUMENT, E2BIG, "there are too many arguments and variables"};
  if (auto checked = place_.check_user(order_.user); !checked) return checked.error();
  auto limits = Limits::take(order_.limits.data(), order_.limits.size());
  if (!limits) return limits.error();
  if (has(ISOGATE_RUNNER_EXEC_PTY) && !place_.has_terminals())
    return unsupported("no terminal is available here: " + place_.missing());
  auto env = complete(std::move(order_.env), place_.surroundings());
  if (!env) return env.error();
  auto found = place_.directory(order_.cwd);
  if (!found) return found.error();
  directory = std::move(*found);
  Command command(Site::host());  // of the container
  command.argv = std::move(order_.argv);
  command.env = std::move(*env);
  command.cwd_fd = directory ? directory.get() : place_.workspace().fd();
  command.stdin_fd = streams_[0].get();
  command.stdout_fd = streams_[1].get();
  command.stderr_fd = streams_[has(ISOGATE_RUNNER_EXEC_MERGE_STDERR) ? 1 : 2].get();
  command.pty = has(ISOGATE_RUNNER_EXEC_PTY);
  command.rows = order_.head.rows;
  command.cols = order_.head.cols;
  command.control_fd = control_.read.get();
  command.cancel_fd = cancel_fd;
  command.limits = *limits;
  command.limits_sampled = order_.limits_sampled;
  return command;
}

bool ExecJob::ran_out_of_memory(const Ending& ending, uint64_t kills_before) const {
  const bool killed = ending.term_signal == SIGKILL || ending.exit_code == kKilledStatus;
  return killed && !ending.killed && ending.started && place_.memory_kills() > kills_before;
}

Result<Ending> ExecJob::execute(int cancel_fd) {
  Fd directory;
  auto prepared = command(directory, cancel_fd);
  if (!prepared) return prepared.error();
  const uint64_t kills_before = place_.memory_kills();
  auto ending = [&] {
    const Orphans::Run run(place_.orphans());
    return place_.runner().run(*prepared);
  }();
  // What its reaper has not ended is an orphan of this process.
  const bool whole = ending && !ending->left_behind;
  left_behind_ = !place_.orphans().sweep(whole ? kSweepPatience : kLostPatience);
  if (!left_behind_) place_.tidy();
  if (place_.disk() != nullptr) place_.disk()->changed();
  if (ending) ending->left_behind = left_behind_;
  if (ending && ran_out_of_memory(*ending, kills_before)) ending->oom_killed = true;
  return ending;
}

Result<Ending> ExecJob::run(int cancel_fd) {
  auto ending = execute(cancel_fd);
  for (Fd& fd : streams_) fd.reset();
  return ending;
}

Answer ExecJob::answer(const Result<Ending>& ending) const {
  if (!ending) {
    Answer answer(crowded(ending.error()));
    if (left_behind_) answer.result.exec_flags = ISOGATE_RESULT_LEFT_BEHIND;
    return answer;
  }
  const isogate_exec_result result = result_of(*ending);
  Answer answer;
  answer.result.exec_flags = result.flags & ~uint32_t{ISOGATE_RESULT_PROVEN};  // only a backend may set it
  answer.result.exit_code = result.exit_code;
  answer.result.term_signal = result.term_signal;
  answer.result.os_errno = result.os_errno;
  answer.result.wall_ns = result.wall_ns;
  answer.result.cpu_ns = result.cpu_ns;
  answer.result.max_rss_bytes = result.max_rss_bytes;
  return answer;
}

// A pipe of records that is full belongs to a reaper that has been stopped: waiting would not help.
void ExecJob::control(const isogate_control& record) {
  [[maybe_unused]] const ssize_t size = ::write(control_.write.get(), &record, sizeof record);
}

}  // namespace isogate::agent
