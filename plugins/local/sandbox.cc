#include "plugins/local/local.h"
#include "runner/exec/abi_exec.h"

namespace isogate::local {

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return user_;
  return find_user(sdk::view(name));
}

void Sandbox::exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  check_usable();
  Command command = or_throw(command_of(request, Site::host(), call.cancel_fd()));
  const User user = or_throw(user_named(request.user));
  const std::string workspace = disk_->path() + "/workspace";
  command.env = or_throw(
      complete(environment_of(request), {workspace, user.name, backend_.shell_, backend_.toolchain_}));
  const Fd cwd = or_throw(workspace_->as(user.identity)->directory(sdk::view(request.cwd)));
  command.cwd_fd = cwd.get();
  command.identity = user.identity;
  const auto ending = backend_.runner_->run(command);
  if (disk_->quota() != nullptr) disk_->quota()->changed();
  result = result_of(or_throw(ending));
}

void Sandbox::evidence(const sdk::Call&, const isogate_evidence_request& request, isogate_evidence& out) {
  check_usable();
  out = or_throw(backend_.runner_->measure(Site::host(), user_.identity, request));
  disk_->add_to(out);
}

// Execs end themselves; what escaped from one still has the sandbox's uid, where it has one of its own.
Result<void> Sandbox::end(uint32_t mode, int cancel_fd) {
  if (mode == ISOGATE_CLOSE_DETACH) return {};
  if (user_.identity.change) {
    if (auto ended = end_processes(user_.identity.uid); !ended) return ended;
  }
  if (mode == ISOGATE_CLOSE_STOP) return {};
  return backend_.purge(id_, user_.identity, *disk_, cancel_fd);
}

}  // namespace isogate::local
