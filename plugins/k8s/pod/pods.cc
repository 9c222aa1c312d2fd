#include "plugins/k8s/pod/pods.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kAskAgain{3'000}, kAsk{10'000}, kAskWatching{3'000};

}  // namespace

Pods::Pods(Api& api, std::string name_space, std::string selector,
           std::function<void(const std::string&)> log)
    : api_(api), name_space_(std::move(name_space)), selector_(std::move(selector)), log_(std::move(log)) {}

Pods::~Pods() {
  std::unique_ptr<Watch> watch;
  {
    const std::lock_guard lock(mutex_);
    watch = std::move(watch_);
  }
}

// With the mutex held.
void Pods::begin() {
  if (watch_) return;
  WatchEvents events;
  events.changed = [this](const Json& pod, bool deleted) { on_change(pod, deleted); };
  events.lost = [this](const std::string& why) {
    log_("the watch of pods is lost (" + why + "); retried until it is back");
  };
  events.restored = [this] { log_("the watch of pods is back"); };
  watch_ = std::make_unique<Watch>(api_, Resource{"v1", name_space_, "pods"}, Selection{selector_}, events);
}

void Pods::on_change(const Json& pod, bool deleted) {
  const std::string name = metadata_text(pod, "name");
  PodState state = state_of(pod);
  if (deleted) {
    if (!state.ended && may_be_there(name, state.uid)) return;
    state.exists = state.running = false;
    state.ended = state.stopped = true;
    if (state.how.empty()) state.how = "its pod was deleted";
  }
  std::shared_ptr<sdk::RunnerLink> link;
  {
    const std::lock_guard lock(mutex_);
    if (const auto awaited = awaited_.find(name); awaited != awaited_.end()) {
      ++awaited->second.event;
      awaited->second.state = state;
      changed_.notify_all();
    }
    const auto found = followed_.find(name);
    if (!state.ended || found == followed_.end() || found->second.uid != state.uid) return;
    link = found->second.link.lock();
    followed_.erase(found);
  }
  log_("the pod " + name + " of a sandbox: " + state.how);
  if (link) link->close(state.how);
}

// A pod that a watch reports as deleted may only have lost a label.
bool Pods::may_be_there(const std::string& name, const std::string& uid) {
  try {
    const PodState now = look(name, Budget(kAskWatching));
    if (now.ended || now.uid != uid) return false;
    log_("the pod " + name + " of a sandbox has lost a label: the watch no longer reports on it");
  } catch (const sdk::Error& error) {
    log_("what became of the pod " + name + " of a sandbox cannot be found out: " + error.what());
  }
  return true;
}

PodState Pods::look(const std::string& name, const Budget& budget) {
  if (const auto pod = api_.find({"v1", name_space_, "pods", name}, budget)) {
    (void)uid_of(*pod);  // an object without one is no pod, and no proof that there is none
    return state_of(*pod);
  }
  PodState gone;
  gone.ended = gone.stopped = true;
  gone.how = "its pod is gone";
  return gone;
}

PodState Pods::await(const std::string& name, const sdk::Call& call, milliseconds most,
                     const std::function<bool(const PodState&)>& done) {
  struct Waiting {
    Pods& pods;
    const std::string& name;
    ~Waiting() {
      const std::lock_guard lock(pods.mutex_);
      if (--pods.awaited_[name].calls == 0) pods.awaited_.erase(name);
    }
  };
  {
    const std::lock_guard lock(mutex_);
    ++awaited_[name].calls;
    begin();
  }
  const Waiting waiting{*this, name};
  const auto until = Clock::now() + most;
  PodState state = look(name, Budget(call, kAsk));
  auto asked = Clock::now();
  for (uint64_t seen = 0; !done(state) && Clock::now() < until;) {
    call.check();
    if (Clock::now() - asked >= kAskAgain) {
      state = look(name, Budget(call, kAsk));
      asked = Clock::now();
      continue;
    }
    std::unique_lock lock(mutex_);
    const Awaited& news = awaited_.at(name);
    if (news.event == seen) {
      const auto left = std::min(until, asked + kAskAgain) - Clock::now();
      changed_.wait(lock, call.cancel_fd(), std::chrono::ceil<milliseconds>(left));
      continue;
    }
    state = news.state;
    seen = news.event;
    asked = Clock::now();
  }
  return state;
}

void Pods::follow(const std::string& name, const std::string& uid,
                  const std::shared_ptr<sdk::RunnerLink>& link) {
  const std::lock_guard lock(mutex_);
  followed_[name] = {uid, link};
  begin();
}

void Pods::forget(const std::string& name) {
  const std::lock_guard lock(mutex_);
  followed_.erase(name);
}

namespace {

// Reasons of a waiting container that do not resolve by waiting.
constexpr const char* kHopeless[] = {
    "CrashLoopBackOff",   "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
    "ErrImagePull",       "ImageInspectError",          "ImagePullBackOff",     "InvalidImageName",
    "PostStartHookError", "PreCreateHookError",         "RegistryUnavailable",  "RunContainerError",
};

std::string joined(const std::string& reason, const std::string& message) {
  if (reason.empty() || message.empty()) return reason + message;
  return reason + ": " + message;
}

// A runner ends by itself only when it is stopped. For an eviction a current kubelet may report only that,
// except in an event.
std::string how_container_ended(const Json& terminated) {
  const Json& code = member(terminated, "exitCode");
  if (code == Json(0))
    return "its container was stopped (evicted, drained, deleted): the events of its pod have the reason";
  const std::string reason = printable_text(terminated, "reason");
  std::string how = "its container ended";
  if (code.is_number_integer()) how += " with exit code " + code.dump();
  if (reason == "OOMKilled") how += "; it was out of memory";
  return how;
}

std::string how_it_failed(const Json& terminated) {
  const Json& code = member(terminated, "exitCode");
  const std::string why = joined(printable_text(terminated, "reason"), printable_text(terminated, "message"));
  return (code.is_number_integer() ? " with exit code " + code.dump() : "") + (why.empty() ? "" : ": " + why);
}

void read_container(const Json& status, bool init, PodState& state) {
  const Json& now = member(status, "state");
  const Json& waiting = member(now, "waiting");
  const Json& terminated = member(now, "terminated");
  const std::string reason = printable_text(waiting, "reason");
  const bool hopeless = std::any_of(std::begin(kHopeless), std::end(kHopeless),
                                    [&](const char* each) { return reason == each; });
  const std::string waits = joined(reason, printable_text(waiting, "message"));
  if (hopeless) state.problem = waits;
  if (!hopeless && !waits.empty()) state.waits = waits;
  if (init && terminated.is_object() && member(terminated, "exitCode") != Json(0))
    state.problem =
        "its init container `" + printable_text(status, "name") + "` failed" + how_it_failed(terminated);
  if (init) return;
  if (terminated.is_object()) {
    state.ended = true;
    state.how = how_container_ended(terminated);
  }
  if (printable_text(status, "name") == kContainer && member(now, "running").is_object())
    state.running = true;
}

void read_conditions(const Json& status, PodState& state) {
  const Json& conditions = member(status, "conditions");
  if (!conditions.is_array()) return;
  for (const Json& each : conditions) {
    if (printable_text(each, "type") == "Ready") state.ready = printable_text(each, "status") == "True";
    if (printable_text(each, "type") != "PodScheduled" || printable_text(each, "status") != "False") continue;
    state.problem = joined(printable_text(each, "reason"), printable_text(each, "message"));
    state.waits_for_node = true;
  }
}

// As the kubelet reports. A container that was gone from the node before the kubelet reported its end is
// reported as waiting forever, with a previous end: if nothing is restarted, that end is the last.
bool container_ended(const Json& status, bool once) {
  const auto terminated = [&](const char* which) {
    return member(member(status, which), "terminated").is_object();
  };
  if (terminated("state")) return true;
  return once && terminated("lastState") && !member(member(status, "state"), "running").is_object();
}

bool containers_ended(const Json& pod) {
  const bool once = printable_text(member(pod, "spec"), "restartPolicy") == "Never";
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    const Json& all = member(member(pod, "status"), kind);
    if (!all.is_array() || all.empty()) return false;
    for (const Json& each : all)
      if (!container_ended(each, once)) return false;
  }
  return true;
}

}  // namespace

PodState state_of(const Json& pod) {
  PodState state;
  state.uid = metadata_text(pod, "uid");
  if (state.uid.empty()) return state;
  const Json& status = member(pod, "status");
  state.exists = true;
  state.node = printable_text(member(pod, "spec"), "nodeName");
  state.node_ip = printable_text(status, "hostIP");
  read_conditions(status, state);
  for (const bool init : {true, false}) {
    const Json& all = member(status, init ? "initContainerStatuses" : "containerStatuses");
    if (!all.is_array()) continue;
    for (const Json& each : all) read_container(each, init, state);
  }
  const std::string phase = printable_text(status, "phase"), reason = printable_text(status, "reason");
  const std::string why = joined(reason, printable_text(status, "message"));
  if (phase == "Failed" || phase == "Succeeded") {
    state.ended = true;
    if (!why.empty()) state.how = "its pod ended: " + why;
    if (state.how.empty()) state.how = "its pod ended";
  }
  if (phase == "Unknown" || reason == "NodeLost") {
    state.ended = true;
    state.how = "its node is lost";
  }
  if (member(pod, "metadata").contains("deletionTimestamp")) {
    state.ended = true;
    if (state.how.empty()) state.how = "its pod was deleted";
  }
  if (state.ended) state.running = state.ready = false;
  state.stopped = state.ended && containers_ended(pod);
  return state;
}

}  // namespace isogate::k8s
