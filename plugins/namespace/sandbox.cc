#include <sched.h>

#include <cerrno>

#include "lib/abi.h"
#include "plugins/namespace/namespace.h"
#include "runner/enclosure/enclosure.h"
#include "runner/exec/abi_exec.h"
#include "runner/exec/apart.h"
#include "runner/exec/environment.h"
#include "runner/files/workspace_path.h"
#include "runner/ports/port.h"

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

// The sockets are made in the sandbox's network and stay of it; this process never enters.
Result<PortSockets> sockets_in(const EnclosurePlan& place) {
  PortSockets sockets;
  auto made = run_apart([&]() -> Result<void> {
    if (place.user_fd >= 0 && ::setns(place.user_fd, CLONE_NEWUSER) != 0)
      return os_error("cannot enter the user namespace", errno);
    if (::setns(place.network_fd, CLONE_NEWNET) != 0)
      return os_error("cannot enter the network of the sandbox", errno);
    auto own = make_port_sockets();
    if (!own) return own.error();
    sockets = std::move(*own);
    return {};
  });
  if (!made) return made.error();
  return sockets;
}

}  // namespace

Sandbox::Sandbox(Backend& backend, std::string id, const Identity& identity,
                 std::unique_ptr<SandboxDisk> disk, std::unique_ptr<Workspace> workspace, const Site& site)
    : backend_(backend),
      id_(std::move(id)),
      identity_(identity),
      disk_(std::move(disk)),
      workspace_(std::move(workspace)),
      site_(site) {}

Sandbox::~Sandbox() { (void)backend_.runner_->release(site_).ok(); }

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return User{identity_, "agent"};
  auto user = find_user(view(name));
  if (user && (user->identity.uid == 0 || user->identity.gid == 0))
    return Error{ISOGATE_PERMISSION_DENIED, 0, "backend `namespace` runs nothing as root"};
  return user;
}

Result<isogate_exec_result> Sandbox::exec(const isogate_call& call, const isogate_exec_request& request) {
  auto command = command_of(request, site_, call.cancel_fd);
  if (!command) return command.error();
  auto user = user_named(request.user);
  if (!user) return user.error();
  auto env =
      complete(environment_of(request), {kWorkspace, user->name, backend_.shell_, backend_.toolchain_});
  if (!env) return env.error();
  auto cwd = directory_of(view(request.cwd));
  if (!cwd) return cwd.error();
  command->env = std::move(*env);
  command->identity = user->identity;
  command->cwd = std::move(*cwd);
  used_ = true;
  auto ending = backend_.runner_->run(*command);
  if (disk_->quota() != nullptr) disk_->quota()->changed();
  if (!ending) return ending.error();
  return result_of(*ending);
}

Result<isogate_evidence> Sandbox::evidence(const isogate_evidence_request& request) {
  const std::lock_guard lock(evidence_mutex_);
  if (!used_) {
    evidence_.reset();
    auto found = backend_.runner_->measure(site_, identity_, request);
    if (!found) return found;
    disk_->add_to(*found);
    if (!used_) evidence_ = *found;
  }
  if (evidence_) return *evidence_;
  return Error{ISOGATE_INTERNAL, 0, "the sandbox was not measured before its first program: end it"};
}

Result<void> Sandbox::connect(const isogate_call& call, const isogate_connect_request& request) {
  auto sockets = sockets_in(site_.enclosure()->plan());
  if (!sockets) return sockets.error();
  auto socket = dial(std::move(*sockets), static_cast<uint16_t>(request.port), call.cancel_fd);
  if (!socket) return socket.error();
  signal_event(request.ready_fd);
  return carry_stream(socket->get(), request.stream_fd, call.cancel_fd);
}

// With its inits all that ran ends. Nothing is killed by uid: what else runs with it on this host is not
// ours. A sandbox does not outlive its host, so that there is nothing to detach from.
Result<void> Sandbox::close(uint32_t mode, int cancel_fd) {
  backend_.mark_ending(id_, true);
  if (auto ended = backend_.runner_->release(site_); !ended) return ended;
  if (mode == ISOGATE_CLOSE_PURGE) {
    if (auto purged = backend_.purge(id_, identity_, *disk_, cancel_fd); !purged) return purged;
  }
  backend_.mark_ending(id_, false);
  return {};
}

}  // namespace isogate::ns
