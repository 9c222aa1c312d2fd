// A program, from its request to its result: the common part of a call that ends with its session and of
// one that outlives it.
#pragma once

#include <string>

#include "runner/agent/calls/call.h"

namespace isogate::agent {

inline constexpr uint32_t kStreamFlags[3] = {ISOGATE_RUNNER_EXEC_STDIN, ISOGATE_RUNNER_EXEC_STDOUT,
                                             ISOGATE_RUNNER_EXEC_STDERR};

class ExecJob {
 public:
  ExecJob(Place& place, link::ExecOrder order) : place_(place), order_(std::move(order)) {}

  [[nodiscard]] bool has(uint32_t flag) const { return (order_.head.flags & flag) != 0; }
  [[nodiscard]] const isogate_runner_keep& keep() const { return order_.keep; }

  // The pipe of its control records.
  Result<void> open();
  // The program's own end of stdin, stdout or stderr. Before run().
  void give(size_t which, Fd end) { streams_[which] = std::move(end); }
  // Any thread, once it is open.
  void control(const isogate_control& record);
  // Runs it to its end: no process of it is left, its ends of the streams are closed. Once.
  Result<Ending> run(int cancel_fd);
  // After run().
  [[nodiscard]] Answer answer(const Result<Ending>& ending) const;

 private:
  Result<Command> command(Fd& directory, int cancel_fd);
  Result<Ending> execute(int cancel_fd);
  [[nodiscard]] bool ran_out_of_memory(const Ending& ending, uint64_t kills_before) const;

  Place& place_;
  link::ExecOrder order_;
  Fd streams_[3];
  Pipe control_;
  bool left_behind_ = false;
};

}  // namespace isogate::agent
