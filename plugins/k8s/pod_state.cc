// How a pod's status is read.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "plugins/k8s/pods.h"
#include "plugins/k8s/profile.h"

namespace isogate::k8s {
namespace {

// Reasons of a waiting container that waiting does not mend.
constexpr const char* kHopeless[] = {
    "CrashLoopBackOff",   "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull",
    "ErrImagePull",       "ImageInspectError",          "ImagePullBackOff",     "InvalidImageName",
    "PostStartHookError", "PreCreateHookError",         "RegistryUnavailable",  "RunContainerError",
};

const Json& member(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

std::string text(const Json& object, const char* key) {
  const Json& found = member(object, key);
  return found.is_string() ? printable(found.get_ref<const std::string&>()) : std::string();
}

std::string joined(const std::string& reason, const std::string& message) {
  if (reason.empty() || message.empty()) return reason + message;
  return reason + ": " + message;
}

std::string how_container_ended(const Json& terminated) {
  const Json& code = member(terminated, "exitCode");
  const std::string reason = text(terminated, "reason");
  std::string how = "its container ended";
  if (code.is_number_integer()) how += " with exit code " + code.dump();
  if (reason == "OOMKilled") how += "; it was out of memory";
  return how;
}

void read_container(const Json& status, bool init, PodState& state) {
  const Json& now = member(status, "state");
  const Json& waiting = member(now, "waiting");
  const Json& terminated = member(now, "terminated");
  const std::string reason = text(waiting, "reason");
  const bool hopeless = std::any_of(std::begin(kHopeless), std::end(kHopeless),
                                    [&](const char* each) { return reason == each; });
  const std::string waits = joined(reason, text(waiting, "message"));
  if (hopeless) state.problem = waits;
  if (!hopeless && !waits.empty()) state.waits = waits;
  if (init && terminated.is_object() && member(terminated, "exitCode") != Json(0))
    state.problem = "its init container could not install the runner: " +
                    joined(text(terminated, "reason"), text(terminated, "message"));
  if (init) return;
  if (terminated.is_object()) {
    state.ended = true;
    state.how = how_container_ended(terminated);
  }
  if (text(status, "name") == kContainer && member(now, "running").is_object()) state.running = true;
}

void read_conditions(const Json& status, PodState& state) {
  const Json& conditions = member(status, "conditions");
  if (!conditions.is_array()) return;
  for (const Json& each : conditions) {
    if (text(each, "type") == "Ready") state.ready = text(each, "status") == "True";
    if (text(each, "type") != "PodScheduled" || text(each, "status") != "False") continue;
    state.problem = joined(text(each, "reason"), text(each, "message"));
    state.waits_for_node = true;
  }
}

// By the kubelet's word. A container that was gone from the node before the kubelet told of its end is told
// as waiting for ever, with an end before that: where nothing is started again, that end is the last.
bool container_ended(const Json& status, bool once) {
  const auto terminated = [&](const char* which) {
    return member(member(status, which), "terminated").is_object();
  };
  if (terminated("state")) return true;
  return once && terminated("lastState") && !member(member(status, "state"), "running").is_object();
}

bool containers_ended(const Json& pod) {
  const bool once = text(member(pod, "spec"), "restartPolicy") == "Never";
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
  if (!pod.is_object()) return state;
  const Json& status = member(pod, "status");
  state.exists = true;
  state.uid = text(member(pod, "metadata"), "uid");
  state.node = text(member(pod, "spec"), "nodeName");
  state.node_ip = text(status, "hostIP");
  read_conditions(status, state);
  for (const bool init : {true, false}) {
    const Json& all = member(status, init ? "initContainerStatuses" : "containerStatuses");
    if (!all.is_array()) continue;
    for (const Json& each : all) read_container(each, init, state);
  }
  const std::string phase = text(status, "phase"), reason = text(status, "reason");
  const std::string why = joined(reason, text(status, "message"));
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
