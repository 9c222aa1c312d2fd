// The way to the runner in a pod.
#include "plugins/k8s/digest.h"
#include "plugins/k8s/exec_channel.h"
#include "plugins/k8s/sandbox_pod_impl.h"
#include "plugins/k8s/stuck_pod.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kHello{10'000}, kKilled{3'000}, kConnect{15'000}, kLate{1'000}, kNow{3'000};
constexpr std::chrono::seconds kGrace{60};

// `check` throws where what was dialled is another container than the one before: it is looked at once the
// stream is there, so that none can come in between.
std::unique_ptr<sdk::RunnerStream> resumed(Services& services, const ExecRequest& request,
                                           std::function<void(const Budget&)> check, const sdk::Call& call) {
  const auto dial = [&api = services.api, request, check = std::move(check)](const sdk::Call& dialling) {
    const Clock::time_point late(std::chrono::nanoseconds(dialling.deadline_ns()));
    const auto left = std::chrono::ceil<milliseconds>(late - Clock::now()) + kLate;
    const Budget budget(std::min(kConnect, left), dialling.cancel_fd());
    auto channel = ExecChannel::open(api, request, budget);
    check(budget);
    return channel;
  };
  sdk::ResumeOptions options;
  options.patience = 2 * request.ping_every - 2 * kLate;
  options.grace = kGrace;
  const std::string owner = sha256_hex(services.holder);
  std::copy_n(owner.begin(), options.owner.size(), options.owner.begin());
  return sdk::resumable_stream(dial, options, call);
}

}  // namespace

void SandboxPod::Tie::set(const Record& record, Json policy) {
  const std::lock_guard lock(mutex_);
  record_ = record;
  policy_ = std::move(policy);
}

void SandboxPod::Tie::check(Services& services, const Budget& budget) {
  std::unique_lock lock(mutex_);
  const Record record = record_;
  const Json policy = policy_;
  lock.unlock();
  if (record.pod_uid.empty()) return;
  const Json now = services.api.get(services.pod(record.pod), budget);
  const PodState state = state_of(now);
  std::string why = state.uid == record.pod_uid ? what_differs(record.likeness, now) : "it is another pod";
  if (why.empty() && !state.running) why = "it does not run";
  if (why.empty())
    why = what_policy_lacks(policy,
                            services.api.get(services.policies(policy.at("metadata").at("name")), budget));
  if (!why.empty())
    throw ApiError(ISOGATE_NOT_FOUND, "the pod " + record.pod + " is not the one before: " + why);
}

// By one exec for each of its streams, which are dialled anew when they are lost: each to this very pod. Or
// by one for a single call.
std::shared_ptr<sdk::RunnerLink> SandboxPod::connect(const sdk::Call& call) {
  const bool stays = services_.config.transport == RunnerTransport::kStream;
  const ExecRequest request =
      exec_request(services_, parts_.pod, stays ? attach_command() : stdio_command(parts_));
  try {
    if (stays) {
      const auto check = [&services = services_, tie = tie_](const Budget& budget) {
        tie->check(services, budget);
      };
      return sdk::RunnerLink::connect(resumed(services_, request, check, call), kHello, call, kKilled);
    }
    return sdk::RunnerLink::connect(ExecChannel::open(services_.api, request, Budget(call, kConnect)), kHello,
                                    call, kKilled);
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
  tie();
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

// A pod that is not trusted serves what runs in it already, and is replaced before what comes then.
bool SandboxPod::is_usable() const { return link_ && link_->alive() && (suspicion_.empty() || !is_alone()); }

std::shared_ptr<sdk::RunnerLink> SandboxPod::link(const sdk::Call& call) {
  if (services_.config.transport == RunnerTransport::kExec) return lend(call);
  const auto lock = lock_for(mutex_, call);
  if (closing_) being_closed();
  if (!is_usable()) in_time(call, [this](const sdk::Call& within) { relink(within); });
  fresh_ = false;
  return link_;
}

// One for this call alone, which ends with it.
std::shared_ptr<sdk::RunnerLink> SandboxPod::lend(const sdk::Call& call) {
  while (!slots_->try_acquire_for(milliseconds(20))) call.check();
  const std::shared_ptr<void> slot(nullptr, [slots = slots_](void*) { slots->release(); });
  const auto lock = lock_for(mutex_, call);
  if (closing_) being_closed();
  if (!is_usable()) in_time(call, [this](const sdk::Call& within) { relink(within); });
  fresh_ = false;
  const auto own = std::exchange(link_, nullptr);
  return {own.get(), [own, slot](sdk::RunnerLink* link) { link->close("its call has ended"); }};
}

void SandboxPod::relink(const sdk::Call& call) {
  if (link_ && link_->spent() && suspicion_.empty())
    suspicion_ = "something that ran in it was not seen to end, or is left";
  std::string why = !suspicion_.empty() ? suspicion_ : link_ ? link_->why() : "it was let go";
  bool trusted = suspicion_.empty();
  const std::string before = lease_.record().pod_uid;
  if (link_) link_->close(why);
  link_.reset();
  if (!trusted) {
    if (!lease_.find(call) || lease_.uid() != parts_.lease_uid) lost();
    trusted = ends_with_pod() || has_others();  // its runner ends what this gateway's last session left
  }
  const bool same = lease_.record().pod_uid == before;
  const std::string other = trusted && same ? why_other(call) : "";
  if (trusted && same && other.empty()) link_ = reconnect(call);
  follow();
  if (link_) return suspicion_.clear();
  if (!lease_.find(call) || lease_.uid() != parts_.lease_uid) lost();
  if (lease_.is_ending()) unavailable("this sandbox is being removed: try again");
  check_place(call);
  if (lease_.is_others()) busy(lease_.holder());
  if (ends_with_pod()) {
    if (!lease_.hold(call)) busy("");
    end_place(call);
    lost();
  }
  // Another gateway may have made the new one already.
  if (lease_.record().pod_uid != before && adopt(call) && join(call)) return suspicion_.clear();
  if (!make_anew(other.empty() ? why : other, call)) busy("");
  prove_again(call);
}

void SandboxPod::distrust(const std::string& why, bool now) noexcept try {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!lock.try_lock_for(kLate) || closing_) return;
  suspicion_ = why;
  const Budget soon(kNow);
  if (!now || !lease_.find(soon) || lease_.uid() != parts_.lease_uid || ends_with_pod() || has_others() ||
      lease_.is_others())
    return;
  services_.pods.forget(lease_.record().pod);
  remove_pods(services_, lease_.record(), parts_.owner.sandbox_id,
              owner_of(services_, lease_.record(), parts_.lease_uid, soon), soon);
} catch (const std::exception& error) {
  services_.warn("a pod that is not trusted stays until its sandbox's next call: " +
                 std::string(error.what()));
}

void SandboxPod::detach() {
  const std::lock_guard lock(mutex_);
  closing_ = true;
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
  const std::string pod = lease_.record().pod, uid = lease_.record().pod_uid;
  lock.unlock();
  if (pod.empty()) return "its pod is gone";
  try {
    const PodState state = services_.pods.look(pod, Budget(call, kNow));
    return state.uid == uid || !state.exists ? state.how : "its pod is gone";
  } catch (const sdk::Error&) {
    return "the API server cannot say what became of its pod";
  }
}

}  // namespace isogate::k8s
