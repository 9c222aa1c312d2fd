#include <sched.h>

#include <cerrno>

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

Sandbox::~Sandbox() {
  if (site_) (void)backend_.runner_->release(*site_).ok();
}

Result<User> Sandbox::user_named(const isogate_str& name) const {
  if (name.len == 0) return User{identity_, "agent"};
  auto user = find_user(sdk::view(name));
  if (user && (user->identity.uid == 0 || user->identity.gid == 0))
    return Error{ISOGATE_PERMISSION_DENIED, 0, "backend `namespace` runs nothing as root"};
  return user;
}

void Sandbox::exec(const sdk::Call& call, const isogate_exec_request& request, isogate_exec_result& result) {
  check_usable();
  Command command = or_throw(command_of(request, *site_, call.cancel_fd()));
  const User user = or_throw(user_named(request.user));
  command.env = or_throw(
      complete(environment_of(request), {kWorkspace, user.name, backend_.shell_, backend_.toolchain_}));
  command.identity = user.identity;
  command.cwd = or_throw(directory_of(sdk::view(request.cwd)));
  used_ = true;
  const auto ending = backend_.runner_->run(command);
  if (disk_->quota() != nullptr) disk_->quota()->changed();
  result = result_of(or_throw(ending));
}

void Sandbox::evidence(const sdk::Call&, const isogate_evidence_request& request, isogate_evidence& out) {
  check_usable();
  const std::lock_guard lock(evidence_mutex_);
  if (!used_) {
    evidence_.reset();
    isogate_evidence found = or_throw(backend_.runner_->measure(*site_, identity_, request));
    disk_->add_to(found);
    if (!used_) evidence_ = found;
  }
  if (!evidence_)
    throw sdk::Error(ISOGATE_INTERNAL, "the sandbox was not measured before its first program: end it");
  out = *evidence_;
}

void Sandbox::connect(const sdk::Call& call, const isogate_connect_request& request) {
  if (request.flags != 0 || request.reserved != 0 || request.port == 0 || request.port > 65535)
    throw sdk::Error(ISOGATE_INVALID_ARGUMENT, "the request for a connection is malformed");
  check_usable();
  const Fd socket = or_throw(dial(or_throw(sockets_in(site_->enclosure()->plan())),
                                  static_cast<uint16_t>(request.port), call.cancel_fd()));
  signal_event(request.ready_fd);
  or_throw(carry_stream(socket.get(), request.stream_fd, call.cancel_fd()));
}

// With its inits all that ran ends. Nothing is killed by uid: what else runs with it on this host is not
// ours. A sandbox does not outlive its host, so that there is nothing to detach from.
Result<void> Sandbox::end(uint32_t mode, int cancel_fd) {
  backend_.mark_ending(id_, true);
  if (site_) {
    if (auto ended = backend_.runner_->release(*site_); !ended) return ended;
  }
  if (mode == ISOGATE_CLOSE_PURGE) {
    if (auto purged = backend_.purge(id_, identity_, *disk_, cancel_fd); !purged) return purged;
  }
  backend_.mark_ending(id_, false);
  return {};
}

}  // namespace isogate::ns
