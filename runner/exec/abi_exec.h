// Converts an exec between the ABI's and the runner's form.
#pragma once

#include "isogate/backend.hpp"
#include "runner/exec/command.h"
#include "runner/exec/environment.h"

namespace isogate {

inline isogate_exec_result result_of(const Ending& ending) {
  isogate_exec_result result{};
  if (ending.oom_killed) result.flags |= ISOGATE_RESULT_OOM_KILLED;
  if (ending.killed) result.flags |= ISOGATE_RESULT_KILLED;
  if (!ending.started) result.flags |= ISOGATE_RESULT_NOT_STARTED;
  if (ending.left_behind) result.flags |= ISOGATE_RESULT_LEFT_BEHIND;
  if (ending.pids_exceeded) result.flags |= ISOGATE_RESULT_PIDS_EXCEEDED;
  if (ending.isolation) result.flags |= ISOGATE_RESULT_PROVEN;
  result.isolation = ending.isolation.value_or(ISOGATE_ISOLATION_NONE);
  result.exit_code = ending.exit_code;
  result.term_signal = ending.term_signal;
  result.os_errno = ending.os_errno;
  result.wall_ns = ending.wall_ns;
  result.cpu_ns = ending.cpu_ns;
  result.max_rss_bytes = ending.max_rss_bytes;
  return result;
}

inline Environment environment_of(const isogate_exec_request& request) {
  Environment env;
  for (uint64_t i = 0; i < request.envc; ++i)
    env.emplace_back(sdk::view(request.env[i].key), sdk::view(request.env[i].value));
  return env;
}

// Refuses a malformed request. Without environment, directory and identity.
inline Result<Command> command_of(const isogate_exec_request& request, Site site, int cancel_fd) {
  constexpr uint32_t kKnown = ISOGATE_EXEC_PTY | ISOGATE_EXEC_LIMITS_SAMPLED | ISOGATE_EXEC_MERGE_STDERR;
  if ((request.flags & ~kKnown) != 0)
    return unknown_bits("the request has unknown flags", request.flags & ~kKnown);
  if (request.reserved != 0) return unknown_bits("the request has unknown fields", request.reserved);
  if (request.argc == 0) return invalid("argv is empty");
  auto limits = Limits::take(request.limits, request.limit_count);
  if (!limits) return limits.error();
  Command command(std::move(site));
  command.limits = *limits;
  for (uint64_t i = 0; i < request.argc; ++i) command.argv.emplace_back(sdk::view(request.argv[i]));
  command.stdin_fd = request.stdin_fd;
  command.stdout_fd = request.stdout_fd;
  const bool merged = (request.flags & ISOGATE_EXEC_MERGE_STDERR) != 0;
  command.stderr_fd = merged ? request.stdout_fd : request.stderr_fd;
  command.pty = (request.flags & ISOGATE_EXEC_PTY) != 0;
  command.rows = request.rows;
  command.cols = request.cols;
  command.control_fd = request.control_fd;
  command.cancel_fd = cancel_fd;
  command.limits_sampled = (request.flags & ISOGATE_EXEC_LIMITS_SAMPLED) != 0;
  return command;
}

}  // namespace isogate
