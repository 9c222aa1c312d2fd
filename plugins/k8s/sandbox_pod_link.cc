// The way to the runner in a pod.
#include "plugins/k8s/digest.h"
#include "plugins/k8s/exec_channel.h"
#include "plugins/k8s/sandbox_pod_impl.h"
#include "plugins/k8s/stuck_pod.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kHello{10'000}, kConnect{15'000}, kLate{1'000};
constexpr std::chrono::seconds kGrace{60};

std::unique_ptr<sdk::RunnerStream> resumed(Services& services, const ExecRequest& request,
                                           const sdk::Call& call) {
  const auto dial = [&api = services.api, request](const sdk::Call& dialling) {
    const Clock::time_point late(std::chrono::nanoseconds(dialling.deadline_ns()));
    const auto left = std::chrono::ceil<milliseconds>(late - Clock::now()) + kLate;
    return ExecChannel::open(api, request, Budget(std::min(kConnect, left), dialling.cancel_fd()));
  };
  sdk::ResumeOptions options;
  options.patience = 2 * request.ping_every - 2 * kLate;
  options.grace = kGrace;
  const std::string owner = sha256_hex(services.holder);
  std::copy_n(owner.begin(), options.owner.size(), options.owner.begin());
  return sdk::resumable_stream(dial, options, call);
}

}  // namespace

// By one exec for each of its streams, which are dialled anew when they are lost: each to this very pod. Or
// by one for a single call.
std::shared_ptr<sdk::RunnerLink> SandboxPod::connect(const sdk::Call& call) {
  const bool stays = services_.config.transport == RunnerTransport::kStream;
  const ExecRequest request =
      exec_request(services_, parts_.pod, stays ? attach_command() : stdio_command(parts_));
  try {
    if (stays) return sdk::RunnerLink::connect(resumed(services_, request, call), kHello, call);
    return sdk::RunnerLink::connect(ExecChannel::open(services_.api, request, Budget(call, kConnect)), kHello,
                                    call);
  } catch (const ApiError&) {
    throw;
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    unavailable(std::string("the runner does not speak: ") + error.what());
  }
}

// To the runner of a pod that runs; null when the pod is gone, or stuck. Throws when nobody can tell: others
// may use it, and what is between here and there may be away for a while.
std::shared_ptr<sdk::RunnerLink> SandboxPod::reconnect(const sdk::Call& call) {
  for (int tries = 0;; ++tries) {
    try {
      return connect(call);
    } catch (const ApiError& error) {
      if (error.status() == ISOGATE_NOT_FOUND) return nullptr;
      if (error.status() == ISOGATE_CANCELLED || error.http_status() == 0 || tries > 0) throw;
    } catch (const sdk::Error& error) {
      if (error.status() == ISOGATE_CANCELLED) throw;
      services_.warn("cannot reach the runner of " + parts_.pod + ": " + error.what());
      if (tries == 0) continue;
      if (is_stuck(services_, parts_, lease_.record().pod_uid, call)) return nullptr;
      throw;
    }
  }
}

std::shared_ptr<sdk::RunnerLink> SandboxPod::link(const sdk::Call& call) {
  try {
    if (services_.config.transport == RunnerTransport::kExec) return lend(call);
    const auto lock = lock_for(mutex_, call);
    return link_ && link_->alive() ? link_ : relink(call);
  } catch (const ApiError&) {
    rethrow_as_ours(services_, std::current_exception());
  }
}

// One for this call alone, which ends with it.
std::shared_ptr<sdk::RunnerLink> SandboxPod::lend(const sdk::Call& call) {
  while (!slots_->try_acquire_for(milliseconds(20))) call.check();
  const std::shared_ptr<void> slot(nullptr, [slots = slots_](void*) { slots->release(); });
  const auto lock = lock_for(mutex_, call);
  if (!link_ || !link_->alive()) relink(call);
  const auto own = std::exchange(link_, nullptr);
  return {own.get(), [own, slot](sdk::RunnerLink* link) { link->close("its call has ended"); }};
}

std::shared_ptr<sdk::RunnerLink> SandboxPod::relink(const sdk::Call& call) {
  const std::string why = link_ ? link_->why() : "it was let go";
  link_.reset();
  const Record& record = lease_.record();
  const PodState state = services_.pods.look(record.pod, call);
  if (state.running && state.uid == record.pod_uid) link_ = reconnect(call);
  follow();
  if (link_) return link_;
  const std::string before = record.pod_uid;
  if (!lease_.find(call) || lease_.is_ending() || lease_.uid() != parts_.lease_uid) lost();
  check_place(call);
  if (ends_with_pod()) lost();
  if (lease_.is_others()) at_work();
  // Another gateway may have made the new one already.
  if (lease_.record().pod_uid != before && adopt(call) && join(call)) return link_;
  const bool made = make_anew(state.ended && !state.how.empty() ? state.how : why, call);
  if (!made) at_work();
  prove_again(call);
  return link_;
}

void SandboxPod::detach() {
  const std::lock_guard lock(mutex_);
  let_go();
}

void SandboxPod::let_go() {
  services_.pods.forget(lease_.record().pod);
  if (link_) link_->close("the sandbox is closed");
  link_.reset();
}

std::string SandboxPod::how_it_ended(const sdk::Call& call) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return "its pod is being replaced";
  const std::string pod = lease_.record().pod;
  lock.unlock();
  try {
    return services_.pods.look(pod, Budget(call, milliseconds(3'000))).how;
  } catch (const sdk::Error&) {
    return "the API server cannot say what became of its pod";
  }
}

}  // namespace isogate::k8s
