#include <nlohmann/json.hpp>

#include "plugins/docker/container.h"
#include "plugins/docker/or_throw.h"
#include "runner/workspace_state.h"

namespace isogate::docker {
namespace {

constexpr isogate_call kUnbounded{sizeof(isogate_call), -1, INT64_MAX, {}};

// What must be the same in every container of a sandbox. Namespaces differ.
bool same_walls(const isogate_evidence& a, const isogate_evidence& b) {
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
  if (record_.evidence) return *record_.evidence;
  if (!fresh_ || !link_)
    throw sdk::Error(ISOGATE_UNAVAILABLE, "nothing was measured before the first command of this sandbox");
  isogate_evidence found{};
  found.struct_size = sizeof found;
  link_->evidence(call, request, found);
  proven_ = {found, std::string(sdk::view(request.gateway_address)), request.gateway_port};
  keep_proof(found);
  return found;
}

// A container that takes the place of a dead one has to have the same walls.
void Container::prove_again(const sdk::Call& call) {
  isogate_evidence found{};
  found.struct_size = sizeof found;
  try {
    if (!proven_)
      throw sdk::Error(ISOGATE_UNAVAILABLE, "nobody measured the first container of this sandbox");
    const isogate_evidence_request request{sizeof request, proven_->port, sdk::str(proven_->address)};
    link_->evidence(call, request, found);
    if (!same_walls(found, proven_->evidence))
      throw sdk::Error(ISOGATE_UNAVAILABLE,
                       "the container that was made anew does not isolate as the first one did: refused");
  } catch (...) {
    discard(sdk::Call(kUnbounded));
    throw;
  }
  keep_proof(found);
}

void Container::keep_proof(const isogate_evidence& found) {
  record_.evidence = found;
  record_.gateway_address = proven_->address;
  record_.gateway_port = proven_->port;
  write_record(directory_.get(), record_);
  or_throw(replace_state_file(directory_.get(), kMeasuredFile, "yes"));
  fresh_ = false;
}

}  // namespace isogate::docker
