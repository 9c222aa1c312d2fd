#include "runner/agent/calls/call.h"
#include "runner/agent/evidence.h"

namespace isogate::agent {
namespace {

class MeasureCall final : public Call {
 public:
  MeasureCall(Place& place, Wire wire, const link::Frame& frame, link::MeasureOrder order)
      : Call(place, wire, frame), order_(std::move(order)) {}
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
  link::measured(result) = link::measured(*found);
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
