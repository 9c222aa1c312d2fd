#include "plugins/k8s/sandbox_pod.h"

#include <thread>

#include "plugins/k8s/bounded_call.h"
#include "plugins/k8s/digest.h"
#include "plugins/k8s/egress.h"
#include "plugins/k8s/measured_pod.h"
#include "plugins/k8s/pod_start.h"
#include "plugins/k8s/provision.h"
#include "plugins/k8s/sandbox_pod_impl.h"
#include "plugins/k8s/stuck_pod.h"
#include "plugins/k8s/virtual_machine.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kGone{100'000}, kPause{200}, kAppear{30'000}, kAsk{3'000};

}  // namespace

SandboxPod::SandboxPod(Services& services, Parts parts, const isogate_limits& limits)
    : services_(services), parts_(std::move(parts)), limits_(limits), lease_(services_, parts_) {}

SandboxPod::~SandboxPod() { detach(); }

// What the cluster says is for the log, and never the caller's mistake.
SandboxPod::Opened SandboxPod::open(const OpenWish& wish, const sdk::Call& call) {
  const auto lock = lock_for(mutex_, call);
  Opened opened;
  in_time(call, [&](const sdk::Call& within) { opened = claim(wish, within); });
  return opened;
}

SandboxPod::Opened SandboxPod::claim(const OpenWish& wish, const sdk::Call& call) {
  for (const auto since = Clock::now();; wait_for_others(call, since)) {
    if (!lease_.find(call)) {
      if (wish.known) lost();
      if (wish.attach_only || wish.as_it_is) nothing_there(wish, call);
      if (make_first(wish, call)) return {.fresh = true};
      continue;
    }
    if (lease_.is_ending()) continue;
    if (!wish.handle.empty() && wish.handle != lease_.uid()) lost();
    if (wish.attach_only) return attach(), Opened{.used_before = true};
    if (lease_.is_others()) continue;
    if (wish.as_it_is) return take_up(call), Opened{.used_before = true};
    check_place(call);
    if (adopt(call)) {
      if (join(call)) return {.used_before = true};
      continue;
    }
    const bool used = lease_.record().place().has_value();
    if (used && ends_with_pod()) {
      if (!lease_.hold(call)) continue;
      end_place(call);
      if (wish.known) lost();
      continue;
    }
    try {
      if (make_anew("", call)) return {.fresh = true, .used_before = used};
    } catch (const sdk::Error& error) {
      if (error.status() != ISOGATE_SANDBOX_LOST || wish.known) throw;
      remove_all(call);  // it was ended, and its workspace is gone: nobody waits for that any more
    }
  }
}

// The Lease is gone, and what belonged to it may take its time.
void SandboxPod::nothing_there(const OpenWish& wish, const sdk::Call& call) {
  if (!wish.handle.empty())
    await_ends(remove_leftovers(services_, parts_.owner.sandbox_id, wish.handle, call), call);
  throw sdk::Error(ISOGATE_NO_SANDBOX, "there is no such sandbox in the cluster");
}

// False: another gateway was faster.
bool SandboxPod::make_first(const OpenWish& wish, const sdk::Call& call) {
  parts_.lease_uid.clear();  // of one before it: what belongs to that goes with it
  lease_.record() = {};
  lease_.record().users = {services_.holder};
  lease_.record().claim = parts_.owner.sandbox_id + "-" + random_hex(4);
  name_anew();
  if (!lease_.create(call)) return false;
  try {
    if (wish.ready == nullptr || !take(*wish.ready, call)) make(call);
    return true;
  } catch (...) {
    try {
      const isogate_call soon = cleaning_up();
      remove_all(sdk::Call(soon), Patience::kNone);
    } catch (const std::exception& error) {
      services_.warn("what was made of a sandbox stays until its next call: " + std::string(error.what()));
    }
    throw;
  }
}

void SandboxPod::name_anew() {
  parts_.pod = parts_.owner.sandbox_id + "-" + random_hex(4);
  name_pod(lease_.record(), services_.config.provision, parts_.pod);
}

// To end it: that takes no pod, and makes none.
void SandboxPod::attach() {
  const Record& record = lease_.record();
  parts_.lease_uid = lease_.uid();
  parts_.pod = record.pod;
  parts_.claim = record.claim;
  if (record.evidence)
    proven_ = {*record.evidence, record.gateway_address, record.gateway_port, record.gateway_listeners};
}

void SandboxPod::wait_for_others(const sdk::Call& call, Clock::time_point since) {
  waits_for_ = lease_.is_ending() ? "the end of its Lease" : who_is_at_work(lease_.holder());
  if (Clock::now() - since >= seconds(services_.config.busy_timeout_sec)) busy(lease_.holder());
  call.check();
  std::this_thread::sleep_for(kPause);
}

// The recorded pod, when it runs and is the very one that was measured.
bool SandboxPod::adopt(const sdk::Call& call) {
  const Record& record = lease_.record();
  attach();
  if (!record.evidence || record.pod_uid.empty()) return false;
  if (record.profile != profile_digest(services_.config, parts_, limits_)) {
    services_.info("the pod " + record.pod + " is made anew: its settings have changed");
    return false;
  }
  if (const std::string why = why_other(call); !why.empty()) {
    services_.warn("the pod " + record.pod + " of a sandbox is not used: " + why);
    return false;
  }
  fresh_ = false;
  link_ = reconnect(call);
  follow();
  return link_ != nullptr;
}

// As what it was made, and by whose name.
Parts SandboxPod::made_as() const {
  const Record& record = lease_.record();
  Parts made = parts_;
  made.pod = record.pod;
  made.claim = record.claim;
  if (record.ahead.empty()) return made;
  made.owner.sandbox_id = record.ahead;
  made.lease_uid = record.ahead_uid;
  return made;
}

// Why the recorded pod is not the one that was measured, as the API server says now; empty: it is.
std::string SandboxPod::why_other(const sdk::Call& call) {
  const Record& record = lease_.record();
  const std::string owner = owner_of(services_, record, parts_.lease_uid, call);
  const auto pod = own_pod(services_, record, owner, call);
  if (!pod) return "it is gone, or another's";
  const PodState state = state_of(*pod);
  if (!state.running) return state.how.empty() ? "it does not run" : state.how;
  if (std::string why = what_differs(record.likeness, *pod); !why.empty()) return why;
  const Parts made = made_as();
  if (std::string why =
          why_weaker(services_.config, pod_of(services_.config, made, limits_), *pod, record.kind);
      !why.empty())
    return why;
  try {
    const Json policy = services_.api.get(services_.policies(made.owner.sandbox_id), call);
    return what_policy_lacks(policy_of(services_.config, made), policy);
  } catch (const ApiError& error) {
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    return "its NetworkPolicy is gone";
  }
}

void SandboxPod::follow() {
  if (!link_) return;
  services_.pods.follow(lease_.record().pod, lease_.record().pod_uid, link_);
  watch_liveness(services_, parts_, lease_.record().pod_uid, link_, running_);
}

// With the Lease held and what will be made in it.
void SandboxPod::make(const sdk::Call& call) {
  parts_.lease_uid = lease_.uid();
  parts_.claim = lease_.record().claim;
  try {
    try_make(call);
  } catch (...) {
    const auto failure = std::current_exception();
    discard_now();
    give_up();
    rethrow_as_ours(services_, failure);
  }
}

void SandboxPod::try_make(const sdk::Call& call) {
  waits_for_ = "its new pod to run";
  Record& record = lease_.record();
  record.profile = profile_digest(services_.config, parts_, limits_);
  prepare_workspace(call);
  prepare_policy(call);
  const Json pod = pod_of(services_.config, parts_, limits_);
  begin_pod(services_, pod, record, call);
  const PodState state = run(pod, call);
  tie_->set({}, {});  // that was of the one before
  link_ = connect(call);
  remember_likeness(call);
  prove_machine(services_, *link_, state, call);
  prove_no_way_out(services_, *link_, state, call);
  fresh_ = true;
  suspicion_.clear();
  follow();
}

// What is measured next is of this container alone.
void SandboxPod::remember_likeness(const sdk::Call& call) {
  const Json pod = services_.api.get(services_.pod(lease_.record().pod), call);
  if (const PodState state = state_of(pod); !state.running || state.uid != lease_.record().pod_uid)
    unavailable("the sandbox's pod ended while it was looked at");
  lease_.record().likeness = likeness_of(pod);
  tie();
}

// Until it, or one that a Job has made after it, runs.
PodState SandboxPod::run(const Json& pod, const sdk::Call& call) {
  const auto end = Clock::now() + seconds(services_.config.ready_timeout_sec);
  const auto left = [&] { return std::chrono::ceil<milliseconds>(end - Clock::now()); };
  Record& record = lease_.record();
  uint64_t more = record.kind == Provision::kJob ? services_.config.job_backoff_limit : 0;
  for (;; --more) {
    find_pod(services_, pod, record, call, std::min(left(), kAppear));
    parts_.pod = record.pod;
    const PodState state = await_start(call, left());
    if (state.running && state.uid == record.pod_uid) return state;
    if (state.ended && more > 0 && left() > milliseconds(0)) continue;
    unavailable("the sandbox's pod cannot be started: " +
                why_not_started(services_, record, state, Budget(call, kAsk)));
  }
}

// What cannot come right by itself is told at once. A new node may be on its way for a while, and a volume
// until it is there.
PodState SandboxPod::await_start(const sdk::Call& call, milliseconds most) {
  const auto due = Clock::now() + seconds(services_.config.node_timeout_sec);
  const auto hopeless = [&](const PodState& state) {
    if (state.problem.empty() || waits_for_volume(state)) return false;
    return !state.waits_for_node || Clock::now() >= due;
  };
  return services_.pods.await(parts_.pod, call, most,
                              [&](const PodState& now) { return now.running || now.ended || hopeless(now); });
}

// False: another gateway has begun with something.
bool SandboxPod::make_anew(const std::string& why, const sdk::Call& call) {
  if (!lease_.hold(call)) return false;
  if (!why.empty()) services_.warn("the pod " + lease_.record().pod + " of a sandbox is made anew: " + why);
  discard_held(call);
  name_anew();
  lease_.record().users = {services_.holder};
  lease_.write(true, call);
  make(call);
  return true;
}

void SandboxPod::discard_held(const sdk::Call& call) {
  try {
    discard(call);
  } catch (...) {
    give_up();
    throw;
  }
}

// Removes what is recorded, and waits until nothing of it runs.
void SandboxPod::discard(const sdk::Call& call, Patience patience) {
  const Record& record = lease_.record();
  services_.pods.forget(record.pod);
  if (link_) link_->close("the pod is removed");
  link_.reset();
  const std::string owner = owner_of(services_, record, parts_.lease_uid, call);
  const auto ending = remove_pods(services_, record, parts_.owner.sandbox_id, owner, call);
  if (patience == Patience::kUntilGone) await_ends(ending, call);
}

void SandboxPod::await_ends(const std::vector<PodName>& pods, const sdk::Call& call) {
  waits_for_ = "the end of its pod before";
  for (const PodName& pod : pods) {
    const auto gone = [&](const PodState& now) { return now.stopped || now.uid != pod.uid; };
    const PodState left = services_.pods.await(pod.name, call, kGone, gone);
    if (!gone(left)) unavailable("the sandbox's pod does not end: is its node `" + left.node_ip + "` lost?");
  }
}

void SandboxPod::discard_now() noexcept {
  try {
    const isogate_call soon = cleaning_up();
    discard(sdk::Call(soon), Patience::kNone);
  } catch (const std::exception& error) {
    services_.warn("a pod that could not be used stays until its sandbox's next call: " +
                   std::string(error.what()));
  }
}

// Nobody is at work on it any more.
void SandboxPod::give_up() noexcept {
  try {
    const isogate_call soon = cleaning_up();
    const sdk::Call call(soon);
    lease_.write(false, Budget(call, milliseconds(5'000)));
  } catch (const std::exception&) {  // then it is once the Lease has expired
  }
}

void SandboxPod::end(const sdk::Call& call) {
  const auto lock = lock_for(mutex_, call);
  closing_ = true;
  if (lease_.find(call)) return stop(call);
  let_go();
  discard(call);
}

// Held first: nobody begins to use what is about to end.
void SandboxPod::stop(const sdk::Call& call) {
  for (;;) {
    if (lease_.is_others()) busy(lease_.holder());
    lease_.record().users = other_users(call);
    const bool shared = !lease_.record().users.empty();
    if (shared ? lease_.join(call) : lease_.hold(call)) {
      if (shared) return let_go();
      break;
    }
    call.check();
    if (!lease_.find(call)) return discard(call);
  }
  if (lease_.record().place().value_or(services_.config.workspace) == Place::kEmptyDir)
    return end_place(call);
  discard_held(call);
  lease_.record().forget_pod();
  lease_.write(false, call);
}

// Held, and its files go with it.
void SandboxPod::end_place(const sdk::Call& call) {
  try {
    remove_all(call);
  } catch (...) {
    give_up();
    throw;
  }
}

// Within open_timeout_sec; what that ends says what it waited for. The mutex is held.
void SandboxPod::in_time(const sdk::Call& call, const std::function<void(const sdk::Call&)>& work) {
  waits_for_.clear();
  const BoundedCall bounded(call, seconds(services_.config.open_timeout_sec));
  try {
    work(bounded.call());
  } catch (const ApiError&) {
    if (bounded.is_late()) too_late();
    rethrow_as_ours(services_, std::current_exception());
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED && bounded.is_late()) too_late();
    throw;
  }
}

void SandboxPod::too_late() {
  unavailable("the sandbox was not open within open_timeout_sec, " +
              std::to_string(services_.config.open_timeout_sec) + " s: it waited for " +
              (waits_for_.empty() ? "the API server" : waits_for_));
}

}  // namespace isogate::k8s
