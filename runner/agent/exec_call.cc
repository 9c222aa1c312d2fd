#include <fcntl.h>

#include <cerrno>
#include <csignal>

#include "runner/agent/call.h"
#include "runner/exec/abi_exec.h"

namespace isogate::agent {
namespace {

constexpr uint32_t kStreamFlags[3] = {ISOGATE_RUNNER_EXEC_STDIN, ISOGATE_RUNNER_EXEC_STDOUT,
                                      ISOGATE_RUNNER_EXEC_STDERR};
constexpr std::chrono::milliseconds kSweepPatience{200};
constexpr std::chrono::milliseconds kLostPatience{2000};  // with a reaper that was killed
constexpr int kKilledStatus = 128 + SIGKILL;              // what a shell makes of a child that was killed

Error crowded(Error error) {
  if (error.os_errno == EAGAIN) error.message += " (is this sandbox's limit on processes, pids, reached?)";
  return error;
}

class ExecCall final : public Call {
 public:
  ExecCall(Place& place, Wire wire, const link::Frame& frame, link::ExecOrder order)
      : Call(place, wire, frame.head.stream),
        given_((frame.head.flags & ISOGATE_RUNNER_WITH_DESCRIPTORS) != 0),
        weight_(frame.head.size),
        order_(std::move(order)),
        out_(wire, stream(), ISOGATE_RUNNER_STDOUT),
        err_(wire, stream(), ISOGATE_RUNNER_STDERR) {}

  [[nodiscard]] size_t weight() const override { return weight_; }
  [[nodiscard]] size_t descriptors() const override;
  Result<void> open(std::vector<Fd> batch) override;
  Answer run() override;
  bool credit(uint32_t channel, uint32_t bytes) override;
  bool control(const isogate_control& record) override;
  void cancel(bool at_once) override;
  void pump(uint32_t channel, std::span<char> buffer) override;

 private:
  [[nodiscard]] bool has(uint32_t flag) const { return (order_.head.flags & flag) != 0; }
  [[nodiscard]] bool flows(uint32_t flag) const { return !given_ && has(flag); }
  Result<void> open_flows();
  Result<Command> command(Fd& directory);
  Result<Ending> execute();
  bool sweep(const Result<Ending>& ending);
  [[nodiscard]] bool ran_out_of_memory(const Ending& ending, uint64_t kills_before) const;

  const bool given_;
  const size_t weight_;
  link::ExecOrder order_;
  Fd streams_[3];  // the program's
  Outlet out_, err_;
  Pipe control_;
  bool left_behind_ = false;
};

// Runs a program of the runner's own as EXEC would.
class ProveCall final : public Call {
 public:
  ProveCall(Place& place, Wire wire, const link::Frame& frame) : Call(place, wire, frame.head.stream) {}
  Result<void> open(std::vector<Fd>) override { return make_cancel(); }
  Answer run() override;
};

Answer ProveCall::run() {
  Command command(Site::host());
  command.argv = {"/proc/self/exe", "version"};
  command.cancel_fd = cancel_fd();
  const Orphans::Run run(place_.orphans());
  const auto ending = place_.runner().run(command);
  if (!ending) return Answer(ending.error());
  const bool ran = ending->started && ending->term_signal == 0 && ending->exit_code == 0;
  if (ran && !ending->left_behind) return {};
  return Answer(
      Error{ISOGATE_UNAVAILABLE, ending->os_errno, "a program of the runner's own does not run here"});
}

size_t ExecCall::descriptors() const {
  size_t count = 0;
  for (const uint32_t flag : kStreamFlags) count += has(flag) ? 1 : 0;
  return count;
}

Result<void> ExecCall::open_flows() {
  for (int i = 0; i < 3; ++i) {
    if (!has(kStreamFlags[i])) continue;
    auto end = i == 0 ? inlet_.open() : i == 1 ? out_.open() : err_.open();
    if (!end) return end.error();
    streams_[i] = std::move(*end);
  }
  return {};
}

Result<void> ExecCall::open(std::vector<Fd> batch) {
  if (auto made = make_cancel(); !made) return made;
  auto control = make_pipe();
  if (!control) return control.error();
  control_ = std::move(*control);
  ::fcntl(control_.write.get(), F_SETFL, O_NONBLOCK);
  if (!given_) return open_flows();
  size_t next = 0;
  for (int i = 0; i < 3; ++i) {
    if (has(kStreamFlags[i])) streams_[i] = std::move(batch[next++]);
  }
  return {};
}

Result<Command> ExecCall::command(Fd& directory) {
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
  command.cancel_fd = cancel_fd();
  command.limits = *limits;
  command.limits_sampled = order_.limits_sampled;
  return command;
}

bool ExecCall::ran_out_of_memory(const Ending& ending, uint64_t kills_before) const {
  const bool killed = ending.term_signal == SIGKILL || ending.exit_code == kKilledStatus;
  return killed && !ending.killed && ending.started && place_.memory_kills() > kills_before;
}

Result<Ending> ExecCall::execute() {
  Fd directory;
  auto prepared = command(directory);
  if (!prepared) return prepared.error();
  const uint64_t kills_before = place_.memory_kills();
  auto ending = [&] {
    const Orphans::Run run(place_.orphans());
    return place_.runner().run(*prepared);
  }();
  left_behind_ = !sweep(ending);
  if (!left_behind_) place_.tidy();
  if (place_.disk() != nullptr) place_.disk()->changed();
  if (ending) ending->left_behind = left_behind_;
  if (ending && ran_out_of_memory(*ending, kills_before)) ending->oom_killed = true;
  return ending;
}

// After every exec: what its reaper has not ended is an orphan of this process.
bool ExecCall::sweep(const Result<Ending>& ending) {
  const bool whole = ending && !ending->left_behind;
  return place_.orphans().sweep(whole ? kSweepPatience : kLostPatience);
}

Answer ExecCall::run() {
  const auto ending = execute();
  for (Fd& fd : streams_) fd.reset();
  inlet_.close();
  out_.drain();
  err_.drain();
  if (!ending) {
    Answer answer(crowded(ending.error()));
    if (left_behind_) answer.result.exec_flags = ISOGATE_RESULT_LEFT_BEHIND;
    return answer;
  }
  const isogate_exec_result result = result_of(*ending);
  Answer answer;
  answer.result.exec_flags = result.flags & ~uint32_t{ISOGATE_RESULT_PROVEN};  // by the backend, if at all
  answer.result.exit_code = result.exit_code;
  answer.result.term_signal = result.term_signal;
  answer.result.os_errno = result.os_errno;
  answer.result.wall_ns = result.wall_ns;
  answer.result.cpu_ns = result.cpu_ns;
  answer.result.max_rss_bytes = result.max_rss_bytes;
  return answer;
}

bool ExecCall::credit(uint32_t channel, uint32_t bytes) {
  if (channel == ISOGATE_RUNNER_STDOUT && flows(ISOGATE_RUNNER_EXEC_STDOUT)) return out_.add_credit(bytes);
  if (channel == ISOGATE_RUNNER_STDERR && flows(ISOGATE_RUNNER_EXEC_STDERR)) return err_.add_credit(bytes);
  return false;
}

// A pipe of records that is full belongs to a reaper that has been stopped: waiting would not help.
bool ExecCall::control(const isogate_control& record) {
  [[maybe_unused]] const ssize_t size = ::write(control_.write.get(), &record, sizeof record);
  return true;
}

void ExecCall::cancel(bool at_once) {
  Call::cancel(at_once);
  give_up(out_.waiting(), at_once);
  give_up(err_.waiting(), at_once);
}

void ExecCall::pump(uint32_t channel, std::span<char> buffer) {
  if (channel == ISOGATE_RUNNER_STDOUT) return out_.pump(buffer);
  if (channel == ISOGATE_RUNNER_STDERR) return err_.pump(buffer);
  Call::pump(channel, buffer);
}

}  // namespace

std::unique_ptr<Call> make_prove(Place& place, Wire wire, const link::Frame& frame) {
  return std::make_unique<ProveCall>(place, wire, frame);
}

std::unique_ptr<Call> make_exec(Place& place, Wire wire, const link::Frame& frame) {
  link::ExecOrder order;
  if (!link::parse(frame.payload, order)) return nullptr;
  return std::make_unique<ExecCall>(place, wire, frame, std::move(order));
}

}  // namespace isogate::agent
