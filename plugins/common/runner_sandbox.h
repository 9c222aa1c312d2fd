// An open sandbox whose verbs all go through a runner. A backend adds how to reach the runner, and what lost
// contact means. Any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "isogate/runner_link.hpp"

namespace isogate {

using Surroundings = std::vector<std::pair<std::string, std::string>>;

class RunnerSandbox : public sdk::Sandbox {
 public:
  void exec(const sdk::Call& call, const isogate_exec_request& request,
            isogate_exec_result& result) override {
    std::vector<isogate_pair> env;
    const isogate_exec_request whole = with_surroundings(request, env);
    with_program(call, result, [&](sdk::RunnerLink& link) { link.exec(call, whole, result); });
  }
  void start_kept(const sdk::Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
                  isogate_exec_result& result) override {
    std::vector<isogate_pair> env;
    const isogate_exec_request whole = with_surroundings(request, env);
    with_program(call, result, [&](sdk::RunnerLink& link) { link.start_kept(call, whole, kept, result); });
  }
  void rejoin(const sdk::Call& call, const isogate_exec_request& request, const isogate_kept_exec& kept,
              isogate_exec_result& result) override {
    with_program(call, result, [&](sdk::RunnerLink& link) { link.rejoin(call, request, kept, result); });
  }
  void read(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.read(call, request, entry); });
  }
  uint64_t write(const sdk::Call& call, const isogate_file_request& request) override {
    uint64_t written = 0;
    with_runner(call, [&](sdk::RunnerLink& link) { written = link.write(call, request); });
    return written;
  }
  void list(const sdk::Call& call, const isogate_file_request& request, const sdk::EntrySink& sink) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.list(call, request, sink); });
  }
  void stat(const sdk::Call& call, const isogate_file_request& request, isogate_entry& entry) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.stat(call, request, entry); });
  }
  void mkdir(const sdk::Call& call, const isogate_file_request& request) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.mkdir(call, request); });
  }
  void move(const sdk::Call& call, const isogate_file_request& request) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.move(call, request); });
  }
  void remove(const sdk::Call& call, const isogate_file_request& request) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.remove(call, request); });
  }
  void disk_use(const sdk::Call& call, isogate_disk_use& out) override;
  void watch(const sdk::Call& call, const isogate_file_request& request) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.watch(call, request); });
  }
  void connect(const sdk::Call& call, const isogate_connect_request& request) override {
    with_runner(call, [&](sdk::RunnerLink& link) { link.connect_to_port(call, request); });
  }

 protected:
  using Verb = std::function<void(sdk::RunnerLink&)>;

  // `surroundings`: of every program, below what a request says.
  explicit RunnerSandbox(Surroundings surroundings) : surroundings_(std::move(surroundings)) {}

  // Throws what `verb` throws. If that is_repeatable() and the runner has ended, the verb is tried once more
  // on the recreated one. If contact was lost later, it is reported as lost, with the runner's fate.
  virtual void with_runner(const sdk::Call& call, const Verb& verb) = 0;
  // The same for a verb that waits for the end of a program.
  virtual void with_program(const sdk::Call& call, isogate_exec_result& result, const Verb& verb) = 0;
  // Whether a verb that threw this had no effect, and delivered nothing.
  static bool is_repeatable(const sdk::Error& error) {
    return error.status() == ISOGATE_UNAVAILABLE && dynamic_cast<const sdk::BrokenOff*>(&error) == nullptr;
  }
  // Its runner, if it is connected now; else null.
  virtual std::shared_ptr<sdk::RunnerLink> runner_if_connected() = 0;

 private:
  // The request with the surroundings, which are in `env`.
  isogate_exec_request with_surroundings(const isogate_exec_request& request,
                                         std::vector<isogate_pair>& env) const;
  const Surroundings surroundings_;
};

}  // namespace isogate
