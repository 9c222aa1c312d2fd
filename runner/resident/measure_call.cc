#include "runner/resident/call.h"
#include "runner/resident/evidence.h"

namespace isogate::resident {
namespace {

class MeasureCall final : public Call {
 public:
  MeasureCall(Place& place, Wire wire, const Frame& frame, MeasureOrder order)
      : Call(place, wire, frame.head.stream), order_(std::move(order)) {}
  Result<void> open(std::vector<Fd>) override { return make_cancel(); }
  Answer run() override;

 private:
  MeasureOrder order_;
};

Answer MeasureCall::run() {
  const Strays::Run run(place_.strays());
  const auto found = place_.runner().measure(Site::host(), Identity{}, {});
  if (!found) return Answer(found.error());
  const isogate_limits limits = limits_in_force();
  Answer answer;
  isogate_runner_result& told = answer.result;
  told.evidence_flags =
      found->flags | try_network({order_.gateway_address, order_.head.gateway_port, order_.listeners});
  told.uid = found->uid;
  told.gid = found->gid;
  told.no_new_privs = found->no_new_privs;
  told.seccomp_mode = found->seccomp_mode;
  told.cap_inheritable = found->cap_inheritable;
  told.cap_permitted = found->cap_permitted;
  told.cap_effective = found->cap_effective;
  told.cap_bounding = found->cap_bounding;
  told.cap_ambient = found->cap_ambient;
  told.ns_mnt = found->ns_mnt;
  told.ns_pid = found->ns_pid;
  told.ns_net = found->ns_net;
  told.ns_ipc = found->ns_ipc;
  told.ns_uts = found->ns_uts;
  told.ns_user = found->ns_user;
  told.ns_cgroup = found->ns_cgroup;
  told.visible_processes = found->visible_processes;
  told.limit_memory_bytes = limits.memory_bytes;
  told.limit_cpu_millis = limits.cpu_millis;
  told.limit_pids = limits.pids;
  return answer;
}

}  // namespace

std::unique_ptr<Call> make_measure(Place& place, Wire wire, const Frame& frame) {
  MeasureOrder order;
  if (!parse_measure(frame.payload, order)) return nullptr;
  return std::make_unique<MeasureCall>(place, wire, frame, std::move(order));
}

}  // namespace isogate::resident
