#include "runner/agent/calls/exec_job.h"

namespace isogate::agent {
namespace {

class ExecCall final : public Call {
 public:
  ExecCall(Place& place, Wire wire, const link::Frame& frame, link::ExecOrder order)
      : Call(place, wire, frame),
        job_(place, std::move(order)),
        err_(wire, stream(), ISOGATE_RUNNER_STDERR) {}

  [[nodiscard]] size_t descriptors() const override;
  Result<void> open(std::vector<Fd> batch) override;
  Answer run() override;
  bool credit(uint32_t channel, uint32_t bytes) override;
  bool control(const isogate_control& record) override {
    job_.control(record);
    return true;
  }
  void cancel(bool at_once) override;
  void pump(uint32_t channel, std::span<char> buffer) override;

 private:
  Result<void> open_flows();

  ExecJob job_;
  Outlet err_;
};

// Runs the runner's own program as EXEC would.
class ProveCall final : public Call {
 public:
  using Call::Call;
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
  for (const uint32_t flag : kStreamFlags) count += job_.has(flag) ? 1 : 0;
  return count;
}

Result<void> ExecCall::open_flows() {
  for (size_t i = 0; i < 3; ++i) {
    if (!job_.has(kStreamFlags[i])) continue;
    auto end = i == 0 ? inlet_.open() : i == 1 ? outlet_.open() : err_.open();
    if (!end) return end.error();
    job_.give(i, std::move(*end));
  }
  return {};
}

Result<void> ExecCall::open(std::vector<Fd> batch) {
  if (auto made = make_cancel(); !made) return made;
  if (auto opened = job_.open(); !opened) return opened;
  if (!given_) return open_flows();
  size_t next = 0;
  for (size_t i = 0; i < 3; ++i)
    if (job_.has(kStreamFlags[i])) job_.give(i, std::move(batch[next++]));
  return {};
}

Answer ExecCall::run() {
  const auto ending = job_.run(cancel_fd());
  inlet_.close();
  outlet_.drain();
  err_.drain();
  return job_.answer(ending);
}

bool ExecCall::credit(uint32_t channel, uint32_t bytes) {
  if (channel == ISOGATE_RUNNER_STDERR) return err_.add_credit(bytes);
  return Call::credit(channel, bytes);
}

void ExecCall::cancel(bool at_once) {
  Call::cancel(at_once);
  give_up(err_.waiting(), at_once);
}

void ExecCall::pump(uint32_t channel, std::span<char> buffer) {
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
  if ((order.head.flags & ISOGATE_RUNNER_EXEC_KEEP) != 0)
    return make_kept_exec(place, wire, frame, std::move(order));
  return std::make_unique<ExecCall>(place, wire, frame, std::move(order));
}

}  // namespace isogate::agent
