#include "runner/agent/calls/call.h"
#include "runner/agent/evidence.h"

namespace isogate::agent {
namespace {

class MeasureCall final : public Call {
 public:
  MeasureCall(Place& place, Wire wire, const link::Frame& frame, link::MeasureOrder order)
      : Call(place, wire, frame.head.stream), order_(std::move(order)) {}
  Result<void> open(std::vector<Fd>) override { return make_cancel(); }
  Answer run() override;

 private:
  link::MeasureOrder order_;
};

Answer MeasureCall::run() {
  const Orphans::Run run(place_.orphans());
  const auto found = place_.runner().measure(Site::host(), Identity{}, {});
  if (!found) return Answer(found.error());
  Limits limits = limits_in_force();
  limits.set(ISOGATE_LIMIT_DISK_BYTES, place_.disk_enforced());
  Answer answer;
  isogate_runner_result& result = answer.result;
  result.evidence_flags =
      found->flags | try_network({order_.gateway_address, order_.head.gateway_port, order_.listeners});
  result.uid = found->uid;
  result.gid = found->gid;
  result.no_new_privs = found->no_new_privs;
  result.seccomp_mode = found->seccomp_mode;
  result.cap_inheritable = found->cap_inheritable;
  result.cap_permitted = found->cap_permitted;
  result.cap_effective = found->cap_effective;
  result.cap_bounding = found->cap_bounding;
  result.cap_ambient = found->cap_ambient;
  result.ns_mnt = found->ns_mnt;
  result.ns_pid = found->ns_pid;
  result.ns_net = found->ns_net;
  result.ns_ipc = found->ns_ipc;
  result.ns_uts = found->ns_uts;
  result.ns_user = found->ns_user;
  result.ns_cgroup = found->ns_cgroup;
  result.visible_processes = found->visible_processes;
  result.limit_memory_bytes = limits.get(ISOGATE_LIMIT_MEMORY_BYTES);
  result.limit_cpu_millis = limits.get(ISOGATE_LIMIT_CPU_MILLIS);
  result.limit_pids = limits.get(ISOGATE_LIMIT_PIDS);
  const LimitList list = limits.list();
  static_assert(sizeof(isogate_limit) == sizeof(isogate_runner_limit));
  answer.message.assign(reinterpret_cast<const char*>(list.items.data()), list.count * sizeof(isogate_limit));
  return answer;
}

}  // namespace

std::unique_ptr<Call> make_measure(Place& place, Wire wire, const link::Frame& frame) {
  link::MeasureOrder order;
  if (!link::parse(frame.payload, order)) return nullptr;
  return std::make_unique<MeasureCall>(place, wire, frame, std::move(order));
}

}  // namespace isogate::agent
