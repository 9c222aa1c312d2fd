#include <unistd.h>

#include "plugins/local/abi.h"
#include "plugins/local/local.h"

namespace isogate::local {
namespace {

isogate_exec_result result_of(const Ending& ending) {
  isogate_exec_result result{};
  if (ending.oom_killed) result.flags |= ISOGATE_RESULT_OOM_KILLED;
  if (ending.killed) result.flags |= ISOGATE_RESULT_KILLED;
  if (!ending.started) result.flags |= ISOGATE_RESULT_NOT_STARTED;
  result.exit_code = ending.exit_code;
  result.term_signal = ending.term_signal;
  result.os_errno = ending.os_errno;
  result.wall_ns = ending.wall_ns;
  result.cpu_ns = ending.cpu_ns;
  result.max_rss_bytes = ending.max_rss_bytes;
  return result;
}

Environment given(const isogate_exec_request& request) {
  Environment env;
  for (uint64_t i = 0; i < request.envc; ++i)
    env.emplace_back(view(request.env[i].key), view(request.env[i].value));
  return env;
}

Command command_of(const isogate_exec_request& request, int cancel_fd) {
  Command command;
  for (uint64_t i = 0; i < request.argc; ++i) command.argv.emplace_back(view(request.argv[i]));
  command.stdin_fd = request.stdin_fd;
  command.stdout_fd = request.stdout_fd;
  command.stderr_fd = request.stderr_fd;
  command.pty = (request.flags & ISOGATE_EXEC_PTY) != 0;
  command.rows = request.rows;
  command.cols = request.cols;
  command.control_fd = request.control_fd;
  command.cancel_fd = cancel_fd;
  command.limits = request.limits;
  return command;
}

Result<void> check(const isogate_exec_request& request) {
  if ((request.flags & ~ISOGATE_EXEC_PTY) != 0) return invalid("the request has unknown flags");
  if (request.argc == 0) return invalid("argv is empty");
  if (request.limits.disk_bytes != 0)
    return unsupported("backend `local` cannot limit the disk space of an exec");
  return {};
}

}  // namespace

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return user_;
  return find_user(view(name));
}

Result<Workspace*> Sandbox::files(const isogate_str& user, std::unique_ptr<Workspace>& other) {
  if (user.len == 0) return workspace_.get();
  auto named = find_user(view(user));
  if (!named) return named.error();
  other = workspace_->as(named->identity);
  return other.get();
}

Result<isogate_exec_result> Sandbox::exec(const isogate_call& call, const isogate_exec_request& request) {
  if (auto checked = check(request); !checked) return checked.error();
  auto user = user_named(request.user);
  if (!user) return user.error();
  const std::string workspace = backend_.sandboxes_dir_ + "/" + id_ + "/workspace";
  auto env = complete(given(request), {workspace, user->name, backend_.shell_, backend_.toolchain_});
  if (!env) return env.error();
  auto cwd = workspace_->as(user->identity)->directory(view(request.cwd));
  if (!cwd) return cwd.error();
  Command command = command_of(request, call.cancel_fd);
  command.env = std::move(*env);
  command.cwd_fd = cwd->get();
  command.identity = user->identity;
  auto ending = backend_.runner_->run(command);
  if (!ending) return ending.error();
  return result_of(*ending);
}

Result<isogate_evidence> Sandbox::evidence() { return backend_.runner_->measure(user_.identity); }

// Execs end themselves; what escaped from one still has the sandbox's uid, where it has one of its own.
Result<void> Sandbox::close(uint32_t mode, int cancel_fd) {
  if (mode > ISOGATE_CLOSE_PURGE) return invalid("the close mode is unknown");
  if (mode == ISOGATE_CLOSE_DETACH) return {};
  if (user_.identity.change) {
    if (auto ended = end_processes(user_.identity.uid); !ended) return ended;
  }
  if (mode == ISOGATE_CLOSE_STOP) return {};
  if (auto purged = Workspace::purge(backend_.sandboxes_dir_, id_, cancel_fd); !purged) return purged;
  return user_.identity.change ? backend_.registry_.release(id_, user_.identity.uid) : Result<void>();
}

}  // namespace isogate::local
