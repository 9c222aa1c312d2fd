#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>

#include "plugins/docker/container.h"
#include "plugins/docker/or_throw.h"
#include "plugins/docker/run_own.h"
#include "runner/workspace_state.h"

namespace isogate::docker {
namespace {

constexpr std::chrono::milliseconds kChecked{10'000};

// What must be the same in every container of a sandbox. Namespaces differ.
bool isolates_alike(const isogate_evidence& a, const isogate_evidence& b) {
  return a.flags == b.flags && a.uid == b.uid && a.gid == b.gid && a.no_new_privs == b.no_new_privs &&
         a.seccomp_mode == b.seccomp_mode && a.cap_inheritable == b.cap_inheritable &&
         a.cap_permitted == b.cap_permitted && a.cap_effective == b.cap_effective &&
         a.cap_bounding == b.cap_bounding && a.cap_ambient == b.cap_ambient &&
         a.limits.memory_bytes == b.limits.memory_bytes && a.limits.cpu_millis == b.limits.cpu_millis &&
         a.limits.pids == b.limits.pids;
}

}  // namespace

isogate_evidence Container::evidence(const sdk::Call& call, const isogate_evidence_request& request) {
  const auto lock = alone(call);
  if (refusal_) throw sdk::Error(*refusal_);
  if (record_.evidence) {
    isogate_evidence found = *record_.evidence;
    // On a network of its own only what was tried then is known not to be reached; with none, nothing is.
    const bool tried = record_.gateway_address == sdk::view(request.gateway_address) &&
                       record_.gateway_port == request.gateway_port &&
                       record_.gateway_listeners == sdk::view(request.gateway_listeners);
    if (services_.config.network && !tried) found.flags &= ~ISOGATE_EVIDENCE_NETWORK;
    return found;
  }
  if (!link_ || !link_->alive()) {
    discard(call);
    make(call);
  }
  if (!fresh_)
    throw sdk::Error(ISOGATE_UNAVAILABLE, "nothing was measured before the first command of this sandbox");
  try {
    const isogate_evidence found = measure(call, request);
    proven_ = {found, std::string(sdk::view(request.gateway_address)), request.gateway_port,
               std::string(sdk::view(request.gateway_listeners))};
    keep_proof(found);
    return found;
  } catch (...) {
    discard_soon();
    throw;
  }
}

isogate_evidence Container::measure(const sdk::Call& call, const isogate_evidence_request& request) {
  isogate_evidence found{};
  found.struct_size = sizeof found;
  link_->evidence(call, request, found);
  if (services_.config.own_seccomp) check_syscalls(call);
  return found;
}

// Of what its programs run under the kernel tells that there is a filter, not which.
void Container::check_syscalls(const sdk::Call& call) {
  const Ran ran = run_own(*link_, {"syscalls"}, kChecked, call);
  if (ran.exit_code == 0) return;
  std::string open = printable(ran.out, 200);
  if (open.empty()) open = "exit code " + std::to_string(ran.exit_code);
  services_.warn("the container " + record_.name + " serves system calls that its profile refuses: " + open);
  throw sdk::Error(ISOGATE_UNAVAILABLE,
                   "the seccomp profile that was asked for is not in force in the sandbox's container (" +
                       open +
                       "): use an Engine and a runtime that apply it, or set `seccomp_profile: engine`");
}

// A container that takes the place of another one has to isolate alike.
void Container::prove_again(const sdk::Call& call) {
  try {
    isogate_evidence_request request{};
    request.struct_size = sizeof request;
    request.gateway_port = proven_->port;
    request.gateway_address = sdk::str(proven_->address);
    request.gateway_listeners = sdk::str(proven_->listeners);
    const isogate_evidence found = measure(call, request);
    if (!isolates_alike(found, proven_->evidence))
      throw sdk::Error(ISOGATE_UNAVAILABLE,
                       "the container that was recreated does not isolate as the first one did: refused");
    keep_proof(found);
  } catch (...) {
    discard_soon();
    throw;
  }
}

void Container::keep_proof(const isogate_evidence& found) {
  record_.evidence = found;
  record_.gateway_address = proven_->address;
  record_.gateway_port = proven_->port;
  record_.gateway_listeners = proven_->listeners;
  or_throw(replace_state_file(directory_.get(), kMeasuredFile, "yes"));
  write_record(directory_.get(), record_);
  fresh_ = false;
}

}  // namespace isogate::docker
