#include "lib/abi.h"
#include "plugins/local/local.h"
#include "runner/exec/abi_exec.h"

namespace isogate::local {

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return user_;
  return find_user(view(name));
}

Result<isogate_exec_result> Sandbox::exec(const isogate_call& call, const isogate_exec_request& request) {
  auto command = command_of(request, Site::host(), call.cancel_fd);
  if (!command) return command.error();
  auto user = user_named(request.user);
  if (!user) return user.error();
  const std::string workspace = disk_->path() + "/workspace";
  auto env = complete(environment_of(request), {workspace, user->name, backend_.shell_, backend_.toolchain_});
  if (!env) return env.error();
  auto cwd = workspace_->as(user->identity)->directory(view(request.cwd));
  if (!cwd) return cwd.error();
  command->env = std::move(*env);
  command->cwd_fd = cwd->get();
  command->identity = user->identity;
  auto ending = backend_.runner_->run(*command);
  if (disk_->quota() != nullptr) disk_->quota()->changed();
  if (!ending) return ending.error();
  return result_of(*ending);
}

Result<isogate_evidence> Sandbox::evidence(const isogate_evidence_request& request) {
  auto found = backend_.runner_->measure(Site::host(), user_.identity, request);
  if (found) disk_->add_to(*found);
  return found;
}

// Execs end themselves; what escaped from one still has the sandbox's uid, where it has one of its own.
Result<void> Sandbox::close(uint32_t mode, int cancel_fd) {
  if (mode == ISOGATE_CLOSE_DETACH) return {};
  if (user_.identity.change) {
    if (auto ended = end_processes(user_.identity.uid); !ended) return ended;
  }
  if (mode == ISOGATE_CLOSE_STOP) return {};
  return backend_.purge(id_, user_.identity, *disk_, cancel_fd);
}

}  // namespace isogate::local
