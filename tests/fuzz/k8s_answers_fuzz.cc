// Responses of an API server: HTTP however it is split, the JSON in it, and what the backend reads from it:
// the state of a pod, the owner of an object, a record, a pod's isolation, the end of an exec, an error.
#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "lib/json.h"
#include "plugins/k8s/client/exec_channel.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/egress.h"
#include "plugins/k8s/pod/measured_pod.h"
#include "plugins/k8s/pod/pod_start.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/pod/virtual_machine.h"
#include "plugins/k8s/pod/weaker.h"
#include "plugins/k8s/record.h"
#include "tests/fuzz/answers.h"
#include "tests/fuzz/require.h"

namespace {

using namespace isogate;
using namespace isogate::k8s;

const Owner kOwner{"instance", "backend", "isg-sandbox"};

constexpr size_t kMessageMost = 1000;

bool is_message(const std::string& text) {
  return text.size() < kMessageMost &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= ' '; });
}

// --- what became of a pod

void look_at_state(const Json& object) {
  const PodState state = state_of(object);
  require(state.exists == !metadata_text(object, "uid").empty());
  require(state.exists || !(state.running || state.ended));
  require(!state.ended || !(state.running || state.ready));
  require(!state.stopped || state.ended);
  require(state.ended == !state.how.empty());
  for (const std::string& each : {state.how, state.problem, state.waits, state.node, state.node_ip})
    require(is_message(each));
  require(is_message(what_lacks(object)));
  if (!state.exists) return;
  Json deleted = object;
  deleted["metadata"]["deletionTimestamp"] = "now";
  require(state_of(deleted).ended && !state_of(deleted).running);
}

// --- whose an object is

void look_at_owner(const Json& object) {
  require(!carries(object, {kOwner.instance, kOwner.backend, ""}));
  Json own = object.is_object() ? object : Json::object();
  own["metadata"] = {{"labels", member(member(object, "metadata"), "labels")}};
  Json& labels = own["metadata"]["labels"];
  if (!labels.is_object()) labels = Json::object();
  const Json wanted = labels_of(kOwner);
  labels.update(wanted);
  require(carries(own, kOwner));
  for (const auto& [label, value] : wanted.items()) {
    Json other = own;
    other["metadata"]["labels"][label] = Json::array({value});
    require(!carries(other, kOwner));
    other["metadata"]["labels"].erase(label);
    require(!carries(other, kOwner));
  }
  require(!belongs_to(object, ""));
  const Json& owners = member(member(object, "metadata"), "ownerReferences");
  if (!owners.is_array()) return;
  for (const Json& each : owners)
    if (const std::string uid = text_at(each, "uid"); !uid.empty()) require(belongs_to(object, uid));
}

// --- the record on a Lease

void look_at_record(const Json& object) {
  const Hold hold = hold_of(object);
  require(hold.lasts.count() >= 0 && hold.lasts <= std::chrono::hours(2));
  const Json &spec = member(object, "spec"), &holder = member(spec, "holderIdentity");
  const bool is_free =
      object.is_object() && (spec.is_null() || (spec.is_object() && (holder.is_null() || holder == "")));
  require(hold.holder.empty() == is_free);
  try {
    const Record record = read_record(object);
    Json lease = object;
    write_record(lease, record, "me", std::chrono::seconds(60));
    const Json text = lease.at("metadata").at("annotations").at(kRecord);
    write_record(lease, read_record(lease), "me", std::chrono::seconds(60));
    require(lease.at("metadata").at("annotations").at(kRecord) == text);
    require(hold_of(lease).holder == "me" && hold_of(lease).lasts == std::chrono::seconds(60));
    require(record.measured == record.place().has_value());
  } catch (const sdk::Error& error) {
    require(error.status() == ISOGATE_INTERNAL);
  }
}

// --- how a pod isolates

void look_at_likeness(const Json& object) {
  const Json likeness = likeness_of(object);
  const std::string why = what_differs(likeness, object);
  require(is_message(why) && !what_differs(Json(), object).empty());
  const bool understood =
      std::none_of(likeness.begin(), likeness.end(), [](const Json& part) { return part.is_null(); });
  require(why.empty() == (understood && !likeness.at("containers").empty()));
  if (!why.empty()) return;
  std::string label = "x";
  while (member(likeness.at("labels"), label.c_str()) == "y") label += 'x';
  Json other = object;
  other["metadata"]["labels"][label] = "y";
  require(!what_differs(likeness, other).empty());
  other = object;
  other["metadata"]["ownerReferences"].push_back({{"uid", "another's"}});
  require(!what_differs(likeness, other).empty());
  other = object;
  other["status"]["containerStatuses"].push_back({{"name", "one more"}});
  require(!what_differs(likeness, other).empty());
}

const Json& asked() {
  static const Json pod = [] {
    Parts parts;
    parts.owner = kOwner;
    parts.pod = parts.claim = "isg-sandbox-1";
    const Config config = parse_config("");
    return pod_of(config, parts, limits_of(config, {}));
  }();
  return pod;
}

const Json& asked_policy() {
  static const Json policy = [] {
    Parts parts;
    parts.owner = kOwner;
    return policy_of(parse_config(""), parts);
  }();
  return policy;
}

void require_isolated(const Json& container) {
  const Json& context = member(container, "securityContext");
  require(member(context, "privileged").is_null() || member(context, "privileged") == false);
  require(member(context, "allowPrivilegeEscalation") == false);
  require(member(context, "readOnlyRootFilesystem") == true && member(context, "runAsNonRoot") == true);
  require(member(context, "capabilities") == Json{{"drop", {"ALL"}}});
  require(member(context, "runAsUser").is_null() && member(context, "seccompProfile").is_null());
  for (const char* limit : {"memory", "cpu", "ephemeral-storage"}) {
    const Json& is = member(member(member(container, "resources"), "limits"), limit);
    require((is.is_number() || is.is_string()) && is != 0 && is != "0");
  }
  for (const char* none : {"env", "envFrom", "args", "lifecycle", "ports", "volumeDevices"})
    require(member(container, none).is_null());
}

// What every pod that is not weaker has.
void require_isolated_pod(const Json& pod) {
  const Json& spec = member(pod, "spec");
  for (const char* off : {"hostNetwork", "hostPID", "hostIPC", "shareProcessNamespace"})
    require(!spec.contains(off) || spec.at(off) == false);
  require(member(spec, "automountServiceAccountToken") == false);
  require(member(member(spec, "securityContext"), "runAsNonRoot") == true);
  require(member(member(spec, "securityContext"), "runAsUser") == 10000);
  require(text_at(member(member(spec, "securityContext"), "seccompProfile"), "type") == "RuntimeDefault");
  for (const char* list : {"initContainers", "containers"}) {
    require(member(spec, list).size() == 1);
    require_isolated(spec.at(list).at(0));
  }
  require(member(spec, "volumes").size() == asked().at("spec").at("volumes").size());
  for (const Json& each : spec.at("volumes")) require(each.size() == 2 && !each.contains("hostPath"));
  require(!spec.contains("ephemeralContainers") && carries(pod, kOwner));
}

// By RFC 6902, without operations that grow it, or by RFC 7386.
Json changed(const Json& whole, const Json& change) try {
  const auto copies = [](const Json& step) { return text_at(step, "op") == "copy"; };
  if (change.is_array())
    return std::any_of(change.begin(), change.end(), copies) ? whole : whole.patch(change);
  Json now = whole;
  now.merge_patch(change);
  return now;
} catch (const Json::exception&) {
  return whole;
}

void look_at_strength(const Json& object) {
  for (const Json& pod : {object, changed(asked(), object)}) {
    const std::string why = weaker_than(asked(), pod);
    if (why.empty()) require_isolated_pod(pod);
  }
  for (const Json& policy : {object, changed(asked_policy(), object)}) {
    const std::string why = what_policy_lacks(asked_policy(), policy);
    require(is_message(why));
    if (!why.empty()) continue;
    for (const char* rules : {"ingress", "egress"}) require(member(member(policy, "spec"), rules).empty());
    require(policy.at("spec").at("podSelector") == asked_policy().at("spec").at("podSelector"));
  }
}

// --- a node

const std::string kBoot = "4e2b6a52-9a51-4f39-8c8b-0d6a5d2c7f10";

void look_at_node(const Json& object) {
  const std::string why = why_no_machine(object, kBoot, "\nflags\t: hypervisor \n");
  const std::string boot = text_at(member(member(object, "status"), "nodeInfo"), "bootID");
  if (why.empty()) require(boot.size() >= kBoot.size() && boot != kBoot);
  (void)kubelet_port_of(object);
}

void look_at_machine(const std::string& text) {
  const Json node = {{"status", {{"nodeInfo", {{"bootID", kBoot}}}}}};
  if (why_no_machine(node, text, "").empty())
    require(text.size() >= kBoot.size() && !text.starts_with(kBoot));
  const bool x86 = text.find("\nflags") != std::string::npos;
  if (x86 && text.find(" hypervisor") == std::string::npos)
    require(!why_no_machine(node, std::string(kBoot.size(), '0'), text).empty());
}

// --- all of it

void look_at_object(const Json& object) {
  for (const auto& look :
       {look_at_state, look_at_owner, look_at_record, look_at_likeness, look_at_strength, look_at_node})
    look(object);
}

void look_at_json(const std::string& text) {
  constexpr size_t kMost = 8;
  const Json answer = parse_shallow(text);
  if (answer.is_discarded()) return;
  require(Json::parse(answer.dump()) == answer);
  look_at_object(answer);
  const Json& items = member(answer, "items");
  if (!items.is_array()) return;
  for (size_t i = 0; i < std::min(items.size(), kMost); ++i) look_at_object(items[i]);
}

void look_at_exec(const std::string& text) {
  if (!is_exec_status(text)) return;
  const Json verdict = Json::parse(text).at("status");
  require(verdict == "Success" || verdict == "Failure");
}

void look_at_error(const std::string& body) {
  const Json json = parse_shallow(body);
  const std::string its_name = text_at(member(json, "details"), "name");
  for (const int status : {200, 304, 400, 403, 404, 409, 410, 422, 429, 500, 501, 599})
    for (const char* name : {"", "one"}) {
      const NetError error = refusal("ask", status, body, name);
      require(error.status() != ISOGATE_OK && error.http_status() == status && !error.maybe_done());
      require(is_message(error.what()) && is_message(error.reason()));
      if (error.status() != ISOGATE_NOT_FOUND) continue;
      require(status == 404 && error.reason() == "NotFound" && (*name == '\0' || its_name == name));
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t piece = data[0], cut = data[1] * 7u + piece;
  const auto answered = test::look_at_answer(bytes, piece, cut);
  require(answered.status == 0 || (answered.status >= 100 && answered.status <= 599));
  for (const std::string& text : {bytes, answered.body}) {
    look_at_json(text);
    look_at_exec(text);
    look_at_error(text);
    look_at_machine(text);
  }
  return 0;
}
