#include "plugins/k8s/pod/sandbox_pod.h"

#include <algorithm>

#include "lib/hash.h"
#include "plugins/common/bounded_call.h"
#include "plugins/common/wait_for.h"
#include "plugins/k8s/client/exec_channel.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/egress.h"
#include "plugins/k8s/pod/measured_pod.h"
#include "plugins/k8s/pod/pod_start.h"
#include "plugins/k8s/pod/pool.h"
#include "plugins/k8s/pod/provision.h"
#include "plugins/k8s/pod/stuck_pod.h"
#include "plugins/k8s/pod/virtual_machine.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kGone{100'000}, kPause{200}, kAppear{30'000}, kAskWhy{3'000}, kHello{10'000},
    kCleanUp{6'000};

bool has(const std::vector<std::string>& all, const std::string& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

const std::string& made_of(const Record& record) {
  return record.object.empty() ? record.pod : record.object;
}

std::string who_is_at_work(const std::string& holder) {
  return holder.empty() ? "another gateway that was at work on it"
                        : "the gateway " + holder + ", which is at work on it";
}

[[noreturn]] void busy(const std::string& holder) {
  unavailable("another gateway is at work on this sandbox" +
              (holder.empty() ? std::string() : ", " + holder) + ": try again");
}

[[noreturn]] void lost() {
  throw sdk::Error(ISOGATE_SANDBOX_LOST,
                   "the workspace of this sandbox is gone; DELETE the sandbox to begin with an empty one");
}

}  // namespace

SandboxPod::SandboxPod(Services& services, Parts parts, const Limits& limits)
    : services_(services), parts_(std::move(parts)), limits_(limits), lease_(services_, parts_) {
  use_->belong_to(parts_.owner.sandbox_id);
}

SandboxPod::~SandboxPod() {
  const std::lock_guard lock(mutex_);
  release();
}

// The cluster's answer is for the log, and never the caller's mistake.
SandboxPod::Opened SandboxPod::open(const OpenWish& wish, const sdk::Call& call) {
  const auto lock = lock_for(mutex_, call);
  Opened opened;
  try {
    in_time(call, [&](const sdk::Call& within) { opened = claim(wish, within); });
  } catch (...) {
    if (!starting_.empty()) discard_now();  // no next call waits for it: this object ends
    throw;
  }
  return opened;
}

SandboxPod::Opened SandboxPod::claim(const OpenWish& wish, const sdk::Call& call) {
  refusal_ = wish.refusal;
  for (const auto since = Clock::now();; wait_for_others(call, since)) {
    const bool there = lease_.find(call);
    if (there && lease_.is_ending()) continue;
    if (!there || (!wish.handle.empty() && wish.handle != lease_.uid())) {
      if (wish.known) lost();
      if (wish.attach_only || wish.unchanged) nothing_there(wish, call);
      if (!wish.handle.empty()) lost();
      if (make_first(wish, call)) return {.fresh = true};
      continue;
    }
    if (wish.attach_only) return attach(), Opened{.used_before = true};
    if (lease_.is_others()) continue;
    if (!parts_.image.empty()) check_image(call);
    if (wish.unchanged) {
      if (re_attach(wish, call)) return {.used_before = true};
      continue;
    }
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
      if (recreate("", call)) return {.fresh = true, .used_before = used};
    } catch (const sdk::Error& error) {
      if (error.status() != ISOGATE_SANDBOX_LOST || wish.known) throw;
      remove_all(call);  // it was ended, and its workspace is gone: no call waits for it any more
    }
  }
}

// The Lease is deleted, and its objects may take longer.
void SandboxPod::nothing_there(const OpenWish& wish, const sdk::Call& call) {
  if (!wish.handle.empty())
    await_ends(remove_leftovers(services_, parts_.owner.sandbox_id, wish.handle, call), call);
  throw sdk::Error(ISOGATE_NO_SANDBOX, "there is no such sandbox in the cluster");
}

// False: another gateway was faster.
bool SandboxPod::make_first(const OpenWish& wish, const sdk::Call& call) {
  parts_.lease_uid.clear();  // of an earlier Lease: its objects are deleted with it
  lease_.record() = {};
  lease_.record().users = {services_.holder};
  lease_.record().image = parts_.image;
  lease_.record().claim = parts_.owner.sandbox_id + "-" + random_hex(4);
  take_new_name();
  if (!lease_.create(call)) return false;
  try {
    if (wish.ready == nullptr || !take(*wish.ready, call)) make(call);
    return true;
  } catch (...) {
    starting_.clear();
    clean_up("objects of a sandbox that failed to open stay until its next call: ",
             [this](const sdk::Call& soon) { remove_all(soon, Patience::kNone); });
    throw;
  }
}

void SandboxPod::take_new_name() {
  parts_.pod = parts_.owner.sandbox_id + "-" + random_hex(4);
  name_pod(lease_.record(), services_.config.provision, parts_.pod);
}

// It may have been created at another gateway, whose front alone has checked that its image is admitted.
// Where nothing of it continues, it gets the one asked for.
void SandboxPod::check_image(const sdk::Call& call) {
  const std::string& image = lease_.record().image;
  if (image == parts_.image) return;
  if (const auto place = lease_.record().place(); !place || !is_there(*place, call)) return;
  const auto named = [](const std::string& each) {
    return each.empty() ? std::string("its backend's own image") : "image `" + each + "`";
  };
  const std::string has = "this sandbox was created with " + named(image);
  if (parts_.image.empty())
    throw sdk::Error(
        ISOGATE_UNSUPPORTED,
        has + " at another gateway, and its pod is gone: call it there, or end it with DELETE ?purge=true");
  throw sdk::Error(ISOGATE_ALREADY_EXISTS,
                   has + ", not " + named(parts_.image) +
                       ": an image is chosen once; end the sandbox with DELETE ?purge=true first");
}

// To end it: takes no pod, and creates none.
void SandboxPod::attach() {
  const Record& record = lease_.record();
  parts_.lease_uid = lease_.uid();
  parts_.pod = record.pod;
  parts_.claim = record.claim;
  if (record.proof) proven_ = record.proof;
}

void SandboxPod::wait_for_others(const sdk::Call& call, Clock::time_point since) {
  waits_for_ = lease_.is_ending() ? "the end of its Lease" : who_is_at_work(lease_.holder());
  if (Clock::now() - since >= seconds(services_.config.busy_timeout_sec)) busy(lease_.holder());
  sleep_for(kPause, call);
}

// The recorded pod, if it runs and is exactly the one that was measured.
bool SandboxPod::adopt(const sdk::Call& call) {
  const Record& record = lease_.record();
  attach();
  if (!record.proof || record.pod_uid.empty()) return false;
  if (record.profile != profile_digest(services_.config, parts_, limits_)) {
    services_.info("the pod " + record.pod + " is recreated: its settings have changed");
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

// What it was created as, and by which name.
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

// Why the recorded pod is not the one that was measured, as the API server reports now; empty: it is.
std::string SandboxPod::why_other(const sdk::Call& call) {
  const Record& record = lease_.record();
  const std::string owner = owner_of(services_, record, parts_.lease_uid, call);
  const auto pod = own_pod(services_, record, owner, call);
  if (!pod) return "it was deleted, or belongs to another sandbox";
  const PodState state = state_of(*pod);
  if (!state.running) return state.how.empty() ? "it does not run" : state.how;
  if (std::string why = what_differs(record.likeness, *pod); !why.empty()) return why;
  const Parts made = made_as();
  if (std::string why =
          why_weaker(services_.config, pod_of(services_.config, made, limits_), *pod, record.kind);
      !why.empty())
    return why;
  const auto policy = services_.api.find(services_.policies(made.owner.sandbox_id), call);
  return policy ? what_policy_lacks(policy_of(services_.config, made), *policy) : "its NetworkPolicy is gone";
}

void SandboxPod::follow() {
  if (!link_) return;
  services_.pods.follow(lease_.record().pod, lease_.record().pod_uid, link_);
  watch_liveness(services_, parts_, lease_.record().pod_uid, link_, use_);
}

// Takes the Lease, and writes into it what will be created.
void SandboxPod::make(const sdk::Call& call) {
  parts_.lease_uid = lease_.uid();
  parts_.claim = lease_.record().claim;
  try {
    try_make(call);
  } catch (...) {
    const auto failure = std::current_exception();
    if (call.cancelled() && is_starting()) {
      release();
      give_up();
    } else {
      discard_now();
    }
    rethrow_as_ours(services_, failure);
  }
}

bool SandboxPod::is_starting() const {
  const Record& record = lease_.record();
  return !starting_.empty() && starting_ == made_of(record) && !record.proof && Clock::now() < starts_until_;
}

void SandboxPod::try_make(const sdk::Call& call) {
  waits_for_ = "its new pod to run";
  Record& record = lease_.record();
  const bool goes_on = is_starting();
  if (!goes_on) {
    record.profile = profile_digest(services_.config, parts_, limits_);
    prepare_workspace(call);
    prepare_policy(call);
  }
  Parts made = made_as();
  made.pod = parts_.pod;  // where a controller names pods, the record has none yet
  const Json pod = pod_of(services_.config, made, limits_);
  if (!goes_on) {
    begin_pod(services_, pod, record, call);
    starting_ = made_of(record);
    starts_until_ = Clock::now() + seconds(services_.config.ready_timeout_sec);
  }
  const PodState state = run(pod, call);
  tie_->set({}, {});  // it was tied to the previous pod
  link_ = connect(call, std::max(kHello, std::chrono::ceil<milliseconds>(starts_until_ - Clock::now())));
  remember_likeness(call);
  prove_machine(services_, *link_, state, call);
  prove_no_way_out(services_, *link_, state, call);
  starting_.clear();
  fresh_ = true;
  suspicion_.clear();
  left_ = false;
  follow();
}

// The next measurement is only of this container.
void SandboxPod::remember_likeness(const sdk::Call& call) {
  const Json pod = services_.api.get(services_.pod(lease_.record().pod), call);
  if (const PodState state = state_of(pod); !state.running || state.uid != lease_.record().pod_uid)
    unavailable("the sandbox's pod ended while it was looked at");
  lease_.record().likeness = likeness_of(pod);
  tie();
}

// Until it runs, or one that a Job created after it.
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
                why_not_started(services_, record, state, Budget(call, kAskWhy)));
  }
}

// A problem that does not resolve by itself is reported at once. A new node may be on its way for a while,
// and so may a volume.
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
bool SandboxPod::recreate(const std::string& why, const sdk::Call& call) {
  check_image(call);
  if (!lease_.hold(call)) return false;
  if (is_starting()) return make(call), true;
  if (!why.empty()) services_.warn("the pod " + lease_.record().pod + " of a sandbox is recreated: " + why);
  while_held([&] { discard(call); });
  take_new_name();
  Record& record = lease_.record();
  record.users = {services_.holder};
  record.image = parts_.image;
  lease_.write(true, call);
  make(call);
  return true;
}

// With the Lease held, which a failure gives up.
template <typename Work>
void SandboxPod::while_held(const Work& work) {
  try {
    work();
  } catch (...) {
    give_up();
    throw;
  }
}

// Removes what is recorded. False: something of it may still run.
bool SandboxPod::discard(const sdk::Call& call, Patience patience) {
  const Record& record = lease_.record();
  release("the pod is removed");
  const std::string owner = owner_of(services_, record, parts_.lease_uid, call);
  const auto ending = remove_pods(services_, record, made_as().owner.sandbox_id, owner, call);
  if (patience == Patience::kNone) return ending.empty();
  await_ends(ending, call);
  return true;
}

void SandboxPod::await_ends(const std::vector<PodName>& pods, const sdk::Call& call) {
  waits_for_ = "the end of its pod before";
  for (const PodName& pod : pods) {
    const auto gone = [&](const PodState& now) { return now.stopped || now.uid != pod.uid; };
    const PodState left = services_.pods.await(pod.name, call, kGone, gone);
    if (!gone(left)) unavailable("the sandbox's pod does not end: is its node `" + left.node_ip + "` lost?");
  }
}

// After a failure, and bounded: the rest expires, or the next call removes it. False: `work` failed, too,
// which the log says, after `failure`.
template <typename Work>
bool SandboxPod::clean_up(const char* failure, const Work& work) const noexcept try {
  const auto until = Clock::now() + kCleanUp;
  const isogate_call soon{sizeof soon, -1, std::chrono::nanoseconds(until.time_since_epoch()).count(), {}};
  work(sdk::Call(soon));
  return true;
} catch (const std::exception& error) {
  services_.warn(std::string(failure) + error.what());
  return false;
}

// One that stays is used by no call, of any gateway. With the Lease held, which is given up.
void SandboxPod::discard_now() noexcept {
  starting_.clear();
  lease_.record().proof.reset();
  clean_up("a pod that could not be used stays until its sandbox's next call: ",
           [this](const sdk::Call& soon) { discard(soon, Patience::kNone); });
  give_up();
}

// No gateway works on it any more.
void SandboxPod::give_up() noexcept {
  try {
    lease_.write(false, Budget(milliseconds(5'000)));
  } catch (const std::exception&) {  // then that holds once the Lease has expired
  }
}

void SandboxPod::end(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  closing_ = true;
  release();
  if (lease_.find(call))
    stop(call);
  else
    discard(call);
} catch (const NetError&) {
  rethrow_as_ours(services_, std::current_exception());
}

bool SandboxPod::end_unused(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  closing_ = true;
  const auto is_used = [&] { return lease_.is_held() || has(lease_.record().users, services_.holder); };
  return lease_.find(call) && stop(call, Patience::kNone, is_used);
} catch (const NetError&) {
  rethrow_as_ours(services_, std::current_exception());
}

// Held first: no gateway begins to use what is about to end. What the Lease records belongs to it, whether it
// was opened here or not. False: something of it may still run, or others use it.
bool SandboxPod::stop(const sdk::Call& call, Patience patience, const std::function<bool()>& is_used) {
  for (;;) {
    parts_.lease_uid = lease_.uid();
    if (is_used && is_used()) {
      lease_.record() = {};  // nothing of it is this object's
      return false;
    }
    if (lease_.is_others()) busy(lease_.holder());
    lease_.record().users = other_users(call);
    const bool shared = !lease_.record().users.empty();
    if (shared ? lease_.join(call) : lease_.hold(call)) {
      if (shared) return false;
      break;
    }
    call.check();
    if (!lease_.find(call)) return discard(call, patience);
  }
  if (lease_.record().place().value_or(services_.config.workspace) == Place::kEmptyDir) {
    end_place(call);
    return true;
  }
  bool ended = false;
  while_held([&] { ended = discard(call, patience); });
  if (ended) lease_.record().forget_pod();
  lease_.write(false, call);
  return ended;
}

// With the Lease held; its files are removed with it.
void SandboxPod::end_place(const sdk::Call& call) {
  while_held([&] { remove_all(call); });
}

// Within open_timeout_sec; the error names what the call waited for. The mutex is held.
void SandboxPod::in_time(const sdk::Call& call, const std::function<void(const sdk::Call&)>& work) {
  waits_for_.clear();
  const BoundedCall bounded(call, seconds(services_.config.open_timeout_sec));
  try {
    work(bounded.call());
  } catch (const NetError&) {
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

namespace {

constexpr seconds kEnding{60};
constexpr milliseconds kVolume{3'000};
constexpr const char* kNotTried = "it was not tried against all listeners of this gateway";

bool is_ending(const Json& object) { return member(object, "metadata").contains("deletionTimestamp"); }

// In the form of the record.
Proof proof_of(const isogate_evidence& evidence, GatewayAddresses gateway) {
  gateway.listeners = tried_of(gateway);
  return {evidence, std::move(gateway)};
}

}  // namespace

// Recreated for each pod, so that no pod runs under a policy that somebody else has changed.
void SandboxPod::prepare_policy(const sdk::Call& call) {
  const Parts made = made_as();
  const Json policy = policy_of(services_.config, made);
  const std::string& name = made.owner.sandbox_id;
  for (const auto since = Clock::now();;) {
    try {
      services_.api.create(services_.policies(), policy, call);
      return;
    } catch (const NetError& error) {
      if (error.status() != ISOGATE_ALREADY_EXISTS || Clock::now() - since > kEnding) throw;
    }
    if (const auto there = services_.api.find(services_.policies(name), call)) {
      if (!carries(*there, made.owner))
        unavailable(
            "there is a NetworkPolicy with this sandbox's name that this "
            "gateway did not make: it is left alone, and nothing runs");
      remove_object(services_, services_.policies(name), uid_of(*there), call);
    }
    call.check();
  }
}

void SandboxPod::prepare_workspace(const sdk::Call& call) {
  if (services_.config.workspace == Place::kEmptyDir) return lease_.record().claim_uid.clear();
  if (!lease_.record().claim_uid.empty()) return adopt_workspace(call);
  Record& record = lease_.record();
  try {
    record.claim_uid =
        uid_of(services_.api.create(services_.claims(), claim_of(services_.config, parts_, limits_), call));
    return wait_for_volume(call);
  } catch (const NetError& error) {
    if (error.status() != ISOGATE_ALREADY_EXISTS) throw;
  }
  // A claim of this sandbox, created when its gateway was killed.
  const Json there = services_.api.get(services_.claims(record.claim), call);
  if (!carries(there, parts_.owner) || !belongs_to(there, lease_.uid()))
    unavailable(
        "there is a PersistentVolumeClaim with the name of this sandbox's that this gateway did not "
        "make: it is left alone, and nothing runs");
  record.claim_uid = uid_of(there);
}

// The scheduler puts a pod that comes before its volume off for seconds. If volumes are created only for
// pods, waiting is useless: once seen, it does not wait again.
void SandboxPod::wait_for_volume(const sdk::Call& call) {
  if (services_.volumes_wait_for_pods) return;
  for (const auto since = Clock::now(); Clock::now() - since < kVolume; sleep_for(kPause, call)) {
    const Json claim = services_.api.get(services_.claims(lease_.record().claim), call);
    if (text_at(member(claim, "status"), "phase") == "Bound") return;
  }
  services_.volumes_wait_for_pods = true;
}

void SandboxPod::adopt_workspace(const sdk::Call& call) {
  const auto there = services_.api.find(services_.claims(lease_.record().claim), call);
  if (!there || uid_of(*there) != lease_.record().claim_uid || is_ending(*there)) lost();
  if (!belongs_to(*there, owner_of(services_, lease_.record(), lease_.uid(), call)))
    unavailable("the PersistentVolumeClaim on this sandbox's record is not this sandbox's: it is left alone");
}

// Throws if its files are in a place where this configuration would not find them; touches nothing.
void SandboxPod::check_place(const sdk::Call& call) {
  const auto place = lease_.record().place();
  if (!place || place == services_.config.workspace || !is_there(*place, call)) return;
  const bool on_claim = place == Place::kClaim;
  const std::string recorded = on_claim ? "claim" : "empty_dir", wanted = on_claim ? "empty_dir" : "claim";
  throw sdk::Error(ISOGATE_UNSUPPORTED,
                   "the workspace of this sandbox is " +
                       std::string(on_claim ? "on a PersistentVolumeClaim" : "in its pod, which still runs") +
                       ", and the configuration demands workspace: " + wanted +
                       ": nothing was touched. Write workspace: " + recorded +
                       " again, or remove the sandbox and its files: DELETE with ?purge=true");
}

// Also if these credentials may not look.
bool SandboxPod::is_there(Place place, const sdk::Call& call) {
  const Record& record = lease_.record();
  if (place == Place::kEmptyDir) {
    const auto pod = own_pod(services_, record, owner_of(services_, record, lease_.uid(), call), call);
    return pod && !state_of(*pod).ended;
  }
  try {
    const auto there = services_.api.find(services_.claims(record.claim), call);
    return there && uid_of(*there) == record.claim_uid && !is_ending(*there);
  } catch (const NetError& error) {
    if (error.http_status() != 403) throw;
    return true;
  }
}

// Its files do, or would.
bool SandboxPod::ends_with_pod() {
  return services_.config.workspace == Place::kEmptyDir || lease_.record().place() == Place::kEmptyDir;
}

isogate_evidence SandboxPod::evidence(const sdk::Call& call, const isogate_evidence_request& request) {
  const auto lock = lock_for(mutex_, call);
  isogate_evidence found{};
  in_time(call, [&](const sdk::Call& within) {
    check_serves();
    services_.learn_gateway(request);
    const Record& record = lease_.record();
    if (record.proof && covers(record.proof->gateway.listeners, tried_of(GatewayAddresses::of(request))))
      found = record.proof->evidence;
    else if (fresh_ && link_)
      found = measure_now(request, within);
    else
      found = replace_and_measure(request, within);
  });
  return found;
}

isogate_evidence SandboxPod::measure_now(const isogate_evidence_request& request, const sdk::Call& call) {
  const isogate_evidence found = measure_in(*link_, request, call);
  proven_ = {found, GatewayAddresses::of(request)};
  keep_proof(found, call);
  return found;
}

// It was measured, but not against all listeners of this gateway.
isogate_evidence SandboxPod::replace_and_measure(const isogate_evidence_request& request,
                                                 const sdk::Call& call) {
  const std::string before = lease_.record().pod_uid;
  find_own(call);
  if (!lease_.record().proof || !proven_)
    unavailable("nothing was measured before the first command of this sandbox");
  if (ends_with_pod())
    unavailable("the files of this sandbox are in its pod, and " + std::string(kNotTried) +
                ": end it with DELETE, or give it the listeners that it had");
  proven_->gateway = GatewayAddresses::of(request);
  replace(before, kNotTried, call);
  return lease_.record().proof->evidence;
}

void SandboxPod::find_own(const sdk::Call& call) {
  if (!lease_.find(call) || lease_.uid() != parts_.lease_uid) lost();
  if (lease_.is_ending()) unavailable("this sandbox is being removed: try again");
}

// By one that another gateway has created since `before`, or by a new one.
void SandboxPod::replace(const std::string& before, const std::string& why, const sdk::Call& call) {
  for (const auto since = Clock::now();; wait_for_others(call, since)) {
    find_own(call);
    if (lease_.is_others()) continue;
    check_place(call);
    if (ends_with_pod()) {
      if (!lease_.hold(call)) continue;
      end_place(call);
      lost();
    }
    const auto& proof = lease_.record().proof;
    const bool tried = proof && proven_ && covers(proof->gateway.listeners, tried_of(proven_->gateway));
    std::string unfit;
    if (proof && !tried && !other_users(call).empty()) {
      unfit = why_other(call);
      if (unfit.empty())
        unavailable("another gateway uses the pod of this sandbox, and " + std::string(kNotTried) +
                    ": give them the same `listen`");
    }
    if (tried && lease_.record().pod_uid != before && adopt(call)) {
      if (join(call)) return suspicion_.clear();
      continue;
    }
    if (recreate(unfit.empty() ? why : unfit, call)) return prove_again(call);
  }
}

// A pod that replaces a dead one must have the same isolation profile.
void SandboxPod::prove_again(const sdk::Call& call) {
  try {
    if (!proven_) unavailable("the first pod of this sandbox was not measured");
    const isogate_evidence found = measure_in(*link_, proven_->gateway.request(), call);
    if (!isolates_alike(found, proven_->evidence))
      unavailable("the pod that was recreated does not isolate as the first one did: refused");
    keep_proof(found, call);
  } catch (...) {
    discard_now();
    throw;
  }
}

void SandboxPod::keep_proof(const isogate_evidence& found, const sdk::Call& call) {
  Record& record = lease_.record();
  record.proof = proof_of(found, proven_->gateway);
  record.measured = true;
  lease_.write(false, call);
}

void SandboxPod::purge(const sdk::Call& call) try {
  const auto lock = lock_for(mutex_, call);
  closing_ = true;
  release();
  remove_all(call);
} catch (const NetError&) {
  rethrow_as_ours(services_, std::current_exception());
}

// The Lease last: as long as it exists, it leads to the rest.
void SandboxPod::remove_all(const sdk::Call& call, Patience patience) {
  if (lease_.find(call)) parts_.lease_uid = lease_.uid();
  if (parts_.lease_uid.empty()) return;
  discard(call, patience);
  const Record& record = lease_.record();
  const std::string owner = owner_of(services_, record, parts_.lease_uid, call);
  remove_parts(services_, record, parts_.owner.sandbox_id, owner, call);
  lease_.remove(call);
}

namespace {

constexpr milliseconds kKilled{10'000}, kConnect{15'000}, kLate{1'000}, kNow{3'000}, kTold{5'000};
constexpr std::chrono::seconds kGrace{60};

// `check` throws if the stream leads to another container than before: it runs once the stream is open, so
// that no restart can come in between.
std::unique_ptr<sdk::RunnerStream> resumed(Services& services, const ExecRequest& request,
                                           std::function<void(const Budget&)> check, milliseconds first,
                                           const sdk::Call& call) {
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
  options.first = first;
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
  std::string why = uid_of(now) == record.pod_uid ? what_differs(record.likeness, now) : "it is another pod";
  if (why.empty() && !state_of(now).running) why = "it does not run";
  if (why.empty())
    why = what_policy_lacks(policy,
                            services.api.get(services.policies(policy.at("metadata").at("name")), budget));
  if (!why.empty())
    throw NetError(ISOGATE_NOT_FOUND, "the pod " + record.pod + " is not the one before: " + why);
}

// With one exec for each of its streams, which are reconnected when they are lost, always to this same pod.
// Or with one exec for a single call.
std::shared_ptr<sdk::RunnerLink> SandboxPod::connect(const sdk::Call& call, milliseconds patience) {
  const bool stays = services_.config.transport == RunnerTransport::kStream;
  std::vector<std::string> single = stdio_command(parts_);
  for (std::string& option : disk_options(services_.config, limits_)) single.push_back(std::move(option));
  const ExecRequest request = exec_request(services_, parts_.pod, stays ? attach_command() : single);
  try {
    if (stays) {
      const auto check = [&services = services_, tie = tie_](const Budget& budget) {
        tie->check(services, budget);
      };
      return sdk::RunnerLink::connect(resumed(services_, request, check, patience, call), patience, call,
                                      kKilled);
    }
    return sdk::RunnerLink::connect(ExecChannel::open(services_.api, request, Budget(call, kConnect)),
                                    patience, call, kKilled);
  } catch (const NetError&) {
    throw;
  } catch (const sdk::Error& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    unavailable(std::string("the runner does not answer: ") + error.what());
  }
}

// To the runner of a pod that runs; null if the pod is gone, or stuck. Throws if that is not known: others
// may use it, and the connection may be interrupted for a while.
std::shared_ptr<sdk::RunnerLink> SandboxPod::reconnect(const sdk::Call& call) {
  tie();
  for (int tries = 0;; ++tries) {
    try {
      return connect(call, kHello);
    } catch (const NetError& error) {
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

// What ran over it has ended: with its pod, or by a later session in a pod that is not replaced anyway.
bool SandboxPod::is_settled(const std::string& pod_uid, const std::shared_ptr<sdk::RunnerLink>& link) {
  if (lease_.record().pod_uid != pod_uid) return true;
  const bool reconnected =
      services_.config.transport != RunnerTransport::kExec && link_ && link_->alive() && link_ != link;
  return reconnected && (ends_with_pod() || has_others());
}

// A distrusted pod serves the calls that already run in it.
bool SandboxPod::is_usable(Use use) {
  std::unique_lock lock(noting_);
  const auto noted = std::exchange(noted_, std::nullopt);
  lock.unlock();
  if (noted && !is_settled(noted->pod_uid, noted->link.lock())) suspicion_ = noted->why;
  if (!link_ || !link_->alive()) return false;
  if (left_ && use == Use::kStart) return false;
  return (suspicion_.empty() && !left_) || !is_alone(use);
}

void SandboxPod::check_serves() const {
  if (closing_)
    throw sdk::Error(ISOGATE_NO_SANDBOX, "this sandbox is being closed: nothing but its close may follow");
  if (refusal_) throw sdk::Error(*refusal_);
}

SandboxPod::Way SandboxPod::link(Use use, const sdk::Call& call) {
  const bool lends = services_.config.transport == RunnerTransport::kExec;
  std::shared_ptr<void> slot;
  if (lends) {
    lock_for(*slots_, call).release();
    slot = {nullptr, [slots = slots_](void*) { slots->unlock(); }};
  }
  const auto lock = lock_for(mutex_, call);
  check_serves();
  if (!is_usable(use)) in_time(call, [&](const sdk::Call& within) { relink(use, within); });
  fresh_ = false;
  if (!lends) return {link_, lease_.record().pod_uid};
  // A connection only for this call, which ends with it.
  const auto own = std::exchange(link_, nullptr);
  const auto end = [own, slot](sdk::RunnerLink* link) { link->close("its call has ended"); };
  return {{own.get(), end}, lease_.record().pod_uid};
}

void SandboxPod::relink(Use use, const sdk::Call& call) {
  // With a connection for each call, others may still run over theirs.
  const bool spares =
      services_.config.transport == RunnerTransport::kExec && use != Use::kStart && !is_alone(use);
  const bool left = !spares && left_.exchange(false);
  if ((left || (link_ && link_->spent())) && suspicion_.empty())
    suspicion_ = "something that ran in it was not seen to end, or is left";
  std::string why = !suspicion_.empty() ? suspicion_ : link_ ? link_->why() : "it was released";
  bool trusted = suspicion_.empty();
  const std::string before = lease_.record().pod_uid;
  if (link_) link_->close(why);
  link_.reset();
  if (!trusted) {
    find_own(call);
    trusted = ends_with_pod() || has_others();  // its runner ends what this gateway's last session left
  }
  const bool same = lease_.record().pod_uid == before;
  std::string other;
  if (!lease_.record().proof)
    other = "it was not measured";
  else if (trusted && same)
    other = why_other(call);
  if (trusted && same && other.empty()) link_ = reconnect(call);
  follow();
  if (link_) return suspicion_.clear();
  replace(before, other.empty() ? why : other, call);
}

void SandboxPod::distrust(const Way& way, const std::string& why, bool now) noexcept try {
  if (!mutex_.lock(-1, kLate)) {
    const std::lock_guard noting(noting_);
    noted_ = Suspicion{way.pod_uid, way.link, why};
    return;
  }
  const std::unique_lock lock(mutex_, std::adopt_lock);
  if (closing_ || is_settled(way.pod_uid, way.link)) return;
  suspicion_ = why;
  const Budget soon(kNow);
  const bool serves_others = link_ && link_->alive() && !is_alone(Use::kCall);
  if (!now || serves_others || !lease_.find(soon) || lease_.uid() != parts_.lease_uid || ends_with_pod() ||
      has_others() || lease_.is_others())
    return;
  services_.pods.forget(lease_.record().pod);
  remove_pods(services_, lease_.record(), made_as().owner.sandbox_id,
              owner_of(services_, lease_.record(), parts_.lease_uid, soon), soon);
} catch (const std::exception& error) {
  services_.warn("a pod that is not trusted stays until its sandbox's next call: " +
                 std::string(error.what()));
}

void SandboxPod::detach() {
  const std::lock_guard lock(mutex_);
  if (!lease_.record().pod_uid.empty() && has(lease_.record().users, services_.holder))
    services_.keeps = true;
  closing_ = true;
  release();
}

void SandboxPod::release(const char* why) {
  services_.pods.forget(lease_.record().pod);
  if (link_) link_->close(why);
  link_.reset();
}

std::string SandboxPod::how_it_ended(const Way& way, const sdk::Call& call) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return "its pod is being replaced";
  const std::string pod = lease_.record().pod, uid = lease_.record().pod_uid;
  lock.unlock();
  if (pod.empty()) return "its pod is gone";
  if (uid != way.pod_uid) return "its pod was replaced";
  try {
    // A kubelet that evicts a pod reports it after it has ended the containers.
    const PodState state = services_.pods.await(
        pod, call, kTold, [&](const PodState& now) { return now.ended || now.uid != uid; });
    return state.uid == uid || !state.exists ? state.how : "its pod is gone";
  } catch (const sdk::Error&) {
    if (call.cancelled()) return "";  // nobody waits any more: what runs in it is not known
    return "the API server does not know what happened to its pod";
  }
}

// With the Lease held. The recorded objects keep the pool's names, and are deleted with this Lease.
bool SandboxPod::take(Pool& pool, const sdk::Call& call) {
  Parts taker = parts_;
  taker.lease_uid = lease_.uid();
  auto ready = pool.take(limits_, taker, call);
  if (!ready) return false;
  lease_.record() = ready->record;
  lease_.record().image = parts_.image;
  lease_.record().users = {services_.holder};
  parts_.lease_uid = lease_.uid();
  parts_.pod = ready->record.pod;
  parts_.claim = ready->record.claim;
  link_ = std::move(ready->link);
  use_ = std::move(ready->use);
  use_->belong_to(parts_.owner.sandbox_id);
  fresh_ = true;
  tie();
  const bool measured = lease_.record().proof.has_value();
  if (measured) {
    attach();
    lease_.record().measured = true;
  }
  lease_.write(!measured, call);
  services_.pods.follow(lease_.record().pod, lease_.record().pod_uid, link_);  // Liveness has it already
  return true;
}

bool SandboxPod::warm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && fresh_ && link_ && link_->alive();
}

std::shared_ptr<sdk::RunnerLink> SandboxPod::link_if_connected() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  return lock && !closing_ && link_ && link_->alive() ? link_ : nullptr;
}

bool SandboxPod::renew(const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  return lease_.hold(call);
}

// Takes a third of a second, because of addresses that do not answer.
bool SandboxPod::measure(const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  const auto gateway = services_.gateway();
  if (!gateway || !link_) return false;
  lease_.record().proof = proof_of(measure_in(*link_, gateway->request(), call), *gateway);
  return true;
}

std::optional<ReadyPod> SandboxPod::give_to(const Parts& taker, const sdk::Call& call) {
  const std::lock_guard lock(mutex_);
  if (!link_ || !link_->alive()) return std::nullopt;
  if (const std::string why = why_other(call); !why.empty()) {
    services_.warn("the pod " + lease_.record().pod + " that was made ahead is not used: " + why);
    return std::nullopt;
  }
  ReadyPod given{lease_.record(), link_, use_};
  given.record.ahead = parts_.owner.sandbox_id;
  given.record.ahead_uid = lease_.uid();
  if (!lease_.give_to(taker, call)) return std::nullopt;
  services_.pods.forget(given.record.pod);
  lease_.record() = {};
  link_.reset();
  return given;
}

bool SandboxPod::drop() noexcept {
  return clean_up("a sandbox made ahead stays for now: ", [this](const sdk::Call& soon) {
    const std::lock_guard lock(mutex_);
    remove_all(soon, Patience::kNone);
  });
}

namespace {

constexpr size_t kManyUsers = 16;  // then gateways that no longer exist are removed

}  // namespace

// This gateway is among its users, and no gateway works on it, as of now: so it is written even if it says so
// already. False: another gateway has written, look again.
bool SandboxPod::join(const sdk::Call& call) {
  Record& record = lease_.record();
  if (record.users.size() >= kManyUsers) record.users = other_users(call);
  if (!has(record.users, services_.holder)) record.users.push_back(services_.holder);
  try {
    if (lease_.join(call)) return true;
  } catch (...) {  // it may still have been written
    forget_user();
    throw;
  }
  release();
  return false;
}

// On record, whether they live or not.
bool SandboxPod::has_others() const {
  const auto& users = lease_.record().users;
  return std::any_of(users.begin(), users.end(),
                     [this](const std::string& each) { return each != services_.holder; });
}

// Those that live, without this gateway.
std::vector<std::string> SandboxPod::other_users(const sdk::Call& call) {
  std::vector<std::string> left;
  for (const std::string& each : lease_.record().users)
    if (each != services_.holder && services_.presence.lives(each, call)) left.push_back(each);
  return left;
}

// Nothing of it is used here any more.
void SandboxPod::forget_user() noexcept {
  release();
  clean_up("a sandbox may count as used here until this gateway ends: ", [this](const sdk::Call& soon) {
    for (const Budget budget(soon); !budget.over(); sleep_for(kPause, soon)) {
      if (!lease_.find(budget) || lease_.is_ending()) return;
      if (lease_.is_others()) continue;
      if (std::erase(lease_.record().users, services_.holder) == 0 || lease_.join(budget)) return;
    }
  });
}

// A pod that cannot be used unchanged ends, if no other gateway uses it. With its workspace, if the
// configuration says that it is the pod's. False: another gateway has written, look again.
bool SandboxPod::re_attach(const OpenWish& wish, const sdk::Call& call) {
  if (lease_.record().place() == Place::kEmptyDir) check_place(call);
  if (!wish.refusal && adopt(call)) return join(call);
  attach();
  stop(call);
  throw sdk::Error(ISOGATE_NO_SANDBOX, "what ran of it could not be re-attached" +
                                           (wish.refusal ? std::string(": ") + wish.refusal->what() : ""));
}

}  // namespace isogate::k8s
