#include <unistd.h>

#include "plugins/local/local.h"
#include "runner/plugin_abi.h"
#include "runner/plugin_exec.h"

namespace isogate::local {

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
  if (auto checked = check_request(request, backend_.name_); !checked) return checked.error();
  auto user = user_named(request.user);
  if (!user) return user.error();
  const std::string workspace = backend_.sandboxes_dir_ + "/" + id_ + "/workspace";
  auto env = complete(environment_of(request), {workspace, user->name, backend_.shell_, backend_.toolchain_});
  if (!env) return env.error();
  auto cwd = workspace_->as(user->identity)->directory(view(request.cwd));
  if (!cwd) return cwd.error();
  Command command = command_of(request, Site::host(), call.cancel_fd);
  command.env = std::move(*env);
  command.cwd_fd = cwd->get();
  command.identity = user->identity;
  auto ending = backend_.runner_->run(command);
  if (!ending) return ending.error();
  return result_of(*ending);
}

Result<isogate_evidence> Sandbox::evidence(const isogate_evidence_request& request) {
  return backend_.runner_->measure(Site::host(), user_.identity, request);
}

// Execs end themselves; what escaped from one still has the sandbox's uid, where it has one of its own.
Result<void> Sandbox::close(uint32_t mode, int cancel_fd) {
  if (mode == ISOGATE_CLOSE_DETACH) return {};
  if (user_.identity.change) {
    if (auto ended = end_processes(user_.identity.uid); !ended) return ended;
  }
  if (mode == ISOGATE_CLOSE_STOP) return {};
  if (auto purged = Workspace::purge(backend_.sandboxes_dir_, id_, cancel_fd); !purged) return purged;
  if (backend_.sweeper_ != nullptr) backend_.sweeper_->wake();
  return user_.identity.change ? backend_.registry_.release(id_, user_.identity.uid) : Result<void>();
}

}  // namespace isogate::local
