#include "plugins/namespace/namespace.h"
#include "runner/environment.h"
#include "runner/plugin_abi.h"
#include "runner/plugin_exec.h"
#include "runner/workspace_path.h"

namespace isogate::ns {
namespace {

constexpr const char* kWorkspace = "/workspace";

// What is below the workspace stays beneath it, however it was written.
Result<std::string> directory_of(std::string_view cwd) {
  const bool own_view = cwd.starts_with('/') && cwd != kWorkspace && !cwd.starts_with("/workspace/");
  auto path = parse_path(cwd, own_view ? ISOGATE_SCOPE_SANDBOX : ISOGATE_SCOPE_WORKSPACE);
  if (!path) return path.error();
  const std::string joined = path->parts.empty() ? "" : path->joined(path->parts.size());
  return own_view ? "/" + joined : joined;
}

}  // namespace

Sandbox::Sandbox(Backend& backend, std::string id, const Identity& identity,
                 std::unique_ptr<Workspace> workspace, std::shared_ptr<Enclosure> enclosure)
    : backend_(backend),
      id_(std::move(id)),
      identity_(identity),
      workspace_(std::move(workspace)),
      enclosure_(std::move(enclosure)) {}

Sandbox::~Sandbox() {
  if (enclosure_ != nullptr) backend_.runner_->release(std::move(enclosure_));
}

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return User{identity_, "agent"};
  auto user = find_user(view(name));
  if (user && (user->identity.uid == 0 || user->identity.gid == 0))
    return Error{ISOGATE_PERMISSION_DENIED, 0, "backend `namespace` runs nothing as root"};
  return user;
}

Result<Workspace*> Sandbox::files(const isogate_str& user, std::unique_ptr<Workspace>& other) {
  if (user.len == 0) return workspace_.get();
  auto named = user_named(user);
  if (!named) return named.error();
  other = workspace_->as(named->identity);
  return other.get();
}

Result<isogate_exec_result> Sandbox::exec(const isogate_call& call, const isogate_exec_request& request) {
  if (auto checked = check_request(request, backend_.name_); !checked) return checked.error();
  auto user = user_named(request.user);
  if (!user) return user.error();
  auto env =
      complete(environment_of(request), {kWorkspace, user->name, backend_.shell_, backend_.toolchain_});
  if (!env) return env.error();
  auto cwd = directory_of(view(request.cwd));
  if (!cwd) return cwd.error();
  Command command = command_of(request, call.cancel_fd);
  command.env = std::move(*env);
  command.identity = user->identity;
  command.enclosure = enclosure_;
  command.cwd = std::move(*cwd);
  auto ending = backend_.runner_->run(command);
  if (!ending) return ending.error();
  return result_of(*ending);
}

Result<isogate_evidence> Sandbox::evidence(const isogate_evidence_request& request) {
  return backend_.runner_->measure(enclosure_, request);
}

// With the last copy of the enclosure its namespaces go, and with its inits all that ran. Nothing is killed
// by uid: what else runs with it on this host is not ours.
Result<void> Sandbox::close(uint32_t mode, int cancel_fd) {
  if (mode > ISOGATE_CLOSE_PURGE) return invalid("the close mode is unknown");
  if (enclosure_ != nullptr) backend_.runner_->release(std::move(enclosure_));
  if (mode != ISOGATE_CLOSE_PURGE) return {};
  if (auto purged = Workspace::purge(backend_.sandboxes_dir_, id_, cancel_fd); !purged) return purged;
  return identity_.change ? backend_.registry_.release(id_, identity_.uid) : Result<void>();
}

}  // namespace isogate::ns
