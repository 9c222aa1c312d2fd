#include "plugins/k8s/pod/provision.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "plugins/common/wait_for.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/pod/sandbox_claim.h"
#include "plugins/k8s/pod/weaker.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFirstPause{30}, kLongestPause{1'000};

struct Maker {
  Provision kind;
  const char *group_version, *plural, *what;
};
constexpr Maker kMakers[] = {
    {Provision::kPod, "v1", "pods", "Pod"},
    {Provision::kJob, "batch/v1", "jobs", "Job"},
    {Provision::kSandbox, "agents.x-k8s.io/v1beta1", "sandboxes", "Sandbox"},
    {Provision::kSandboxClaim, kAgentsExtensions, "sandboxclaims", "SandboxClaim"},
};

const Maker& maker(Provision kind) {
  return *std::find_if(std::begin(kMakers), std::end(kMakers),
                       [kind](const Maker& each) { return each.kind == kind; });
}

Resource resource_of(Services& services, Provision kind, const Budget& budget, const std::string& name = {}) {
  if (kind == Provision::kSandbox) return services.sandbox_object(name, budget);
  return {maker(kind).group_version, services.name_space, maker(kind).plural, name};
}

// The object from which a controller creates pods: it names them, and owns them.
Json template_of(const Json& pod) {
  const Json& metadata = pod.at("metadata");
  return {{"metadata", {{"labels", metadata.at("labels")}, {"annotations", metadata.at("annotations")}}},
          {"spec", pod.at("spec")}};
}

Json job_of(const Config& config, const Json& pod) {
  Json job = {{"apiVersion", "batch/v1"},
              {"kind", "Job"},
              {"metadata", pod.at("metadata")},
              {"spec",
               {{"parallelism", 1},
                {"completions", 1},
                {"backoffLimit", config.job_backoff_limit},
                {"ttlSecondsAfterFinished", config.job_ttl_sec},
                {"template", template_of(pod)}}}};
  Json& spec = job["spec"];
  if (config.max_lifetime_sec != 0) {
    spec["activeDeadlineSeconds"] = config.max_lifetime_sec;
    spec["template"]["spec"].erase("activeDeadlineSeconds");
  }
  return job;
}

Json sandbox_of(const Json& pod) {
  return {{"apiVersion", maker(Provision::kSandbox).group_version},
          {"kind", "Sandbox"},
          {"metadata", pod.at("metadata")},
          {"spec", {{"podTemplate", template_of(pod)}}}};
}

// The pod's template in the object that creates it.
Json held_by(const Json& made) {
  const Json& spec = member(made, "spec");
  for (const char* field : {"template", "podTemplate"})
    if (spec.contains(field)) return spec.at(field);
  return made;
}

// In the version that the cluster serves.
Json body_of(Services& services, const Json& pod, Provision kind, const Budget& budget) {
  Json body = maker_of(services.config, pod);
  body["apiVersion"] = resource_of(services, kind, budget).group_version;
  return body;
}

void refuse_weaker(const Config& config, const Json& pod, const Json& is, Provision kind) {
  if (const std::string why = why_weaker(config, pod, is, kind); !why.empty())
    unavailable("the cluster made a weaker pod than it was asked for: " + why + "; nothing runs in it");
}

// All pods of this sandbox that the object made.
std::vector<Json> pods_of(Services& services, const std::string& sandbox_id, const std::string& object_uid,
                          const Budget& budget) {
  const Json all =
      services.api.list(services.pod(), {std::string(kLabelSandbox) + "=" + sandbox_id, "", 500}, budget);
  std::vector<Json> found;
  for (const Json& each : all.at("items"))
    if (belongs_to(each, object_uid)) found.push_back(each);
  return found;
}

// Of those that tenants may get.
std::vector<Json> candidates(Services& services, const Json& pod, const Record& record,
                             const Budget& budget) {
  if (record.kind != Provision::kSandboxClaim)
    return pods_of(services, pod.at("metadata").at("labels").at(kLabelSandbox), record.object_uid, budget);
  auto found = pod_of_claim(services, record, pod, budget);
  return found ? std::vector<Json>{std::move(*found)} : std::vector<Json>();
}

// The object's own conditions, when it has no pod.
std::string why_none(Services& services, const Record& record, const Budget& budget) {
  const Json object = services.api.get(resource_of(services, record.kind, budget, record.object), budget);
  const std::string name = std::string(maker(record.kind).what) + " " + record.object;
  std::string why = name + " has no pod: does its controller run? `kubectl describe` may show more";
  const Json& conditions = member(member(object, "status"), "conditions");
  for (const Json& each : conditions)
    if (const std::string message = text_at(each, "message"); !message.empty())
      why = name + " has no pod: " + one_line(message);
  return why;
}

// The object of that name, if it is `uid` (empty: any, it was about to be created) and belongs to `owner`.
std::optional<Json> get_own(Services& services, const Resource& what, const std::string& uid,
                            const std::string& owner, const Budget& budget) {
  if (what.name.empty() || owner.empty()) return std::nullopt;
  auto there = services.api.find(what, budget);
  if (!there || (!uid.empty() && uid_of(*there) != uid)) return std::nullopt;
  if (belongs_to(*there, owner)) return there;
  services.warn(what.text() + " is on a sandbox's record, and not the sandbox's: it is left alone");
  return std::nullopt;
}

std::optional<Json> own_object(Services& services, const Record& record, const std::string& owner,
                               const Budget& budget) {
  return get_own(services, resource_of(services, record.kind, budget, record.object), record.object_uid,
                 owner, budget);
}

// Of those that are still there: they may still run.
std::vector<PodName> remove_each(Services& services, const std::vector<Json>& pods, const Budget& budget) {
  std::vector<PodName> ending;
  for (const Json& each : pods) {
    PodName pod{metadata_text(each, "name"), uid_of(each)};
    if (remove_object(services, services.pod(pod.name), pod.uid, budget)) ending.push_back(std::move(pod));
  }
  return ending;
}

// Its own pods, also found by the label, so that a record alone never leads to another sandbox's.
std::vector<Json> pods_to_end(Services& services, const Record& record, const std::string& sandbox_id,
                              const std::string& object_uid, const Budget& budget) {
  if (record.kind != Provision::kSandboxClaim) return pods_of(services, sandbox_id, object_uid, budget);
  const auto pod =
      record.pod_uid.empty() ? std::nullopt : services.api.find(services.pod(record.pod), budget);
  if (!pod || uid_of(*pod) != record.pod_uid) return {};
  const Json labels = own_labels_of(member(member(*pod, "metadata"), "labels"));
  return text_at(labels, kLabelSandbox) == sandbox_id ? std::vector<Json>{*pod} : std::vector<Json>();
}

}  // namespace

void name_pod(Record& record, Provision kind, const std::string& name) {
  record.forget_pod();
  record.kind = kind;
  (kind == Provision::kPod ? record.pod : record.object) = name;
}

Json maker_of(const Config& config, const Json& pod) {
  switch (config.provision) {
    case Provision::kJob:
      return job_of(config, pod);
    case Provision::kSandbox:
      return sandbox_of(pod);
    case Provision::kSandboxClaim:
      return sandbox_claim_of(config, pod);
    case Provision::kPod:
      break;
  }
  return pod;
}

std::string why_not_taken(Services& services, const Json& pod, const Budget& budget) {
  const Provision kind = services.config.provision;
  const Resource resource = resource_of(services, kind, budget);
  const std::string plural = maker(kind).plural, version = resource.group_version;
  try {
    const Json body = body_of(services, pod, kind, budget);
    const Json made = services.api.create(resource, body, budget, {{"dryRun", "All"}});
    if (kind == Provision::kSandboxClaim) return why_pool_unfit(services, pod, budget);
    const std::string weaker = weaker_than(held_by(body), held_by(made));
    return weaker.empty() ? "" : "its " + plural + " hold weaker pods than they are given: " + weaker;
  } catch (const NetError& error) {
    if (error.http_status() == 404)
      return "the cluster has no CustomResourceDefinition " + plural + " of " + version +
             ": install it with its controller, or write another `provision`";
    if (error.http_status() != 403 && error.http_status() != 422 && error.http_status() != 400) throw;
    return "its " + plural + " are not admitted: " + error.what();
  }
}

void begin_pod(Services& services, const Json& pod, Record& record, const Budget& budget) {
  if (record.kind == Provision::kSandboxClaim)
    if (const std::string why = why_pool_unfit(services, pod, budget); !why.empty())
      unavailable("the sandbox's pod cannot be taken: " + why);
  const Json body = body_of(services, pod, record.kind, budget);
  const Json made = services.api.create(resource_of(services, record.kind, budget), body, budget);
  (record.kind == Provision::kPod ? record.pod_uid : record.object_uid) = uid_of(made);
  if (record.kind == Provision::kPod) refuse_weaker(services.config, pod, made, record.kind);
}

void find_pod(Services& services, const Json& pod, Record& record, const sdk::Call& call, milliseconds most) {
  if (record.kind == Provision::kPod) return;
  const auto until = Clock::now() + most;
  for (milliseconds pause = kFirstPause; Clock::now() < until; pause = std::min(2 * pause, kLongestPause)) {
    for (const Json& each : candidates(services, pod, record, call)) {
      if (state_of(each).ended) continue;
      record.pod = metadata_text(each, "name");
      record.pod_uid = uid_of(each);
      return refuse_weaker(services.config, pod, each, record.kind);
    }
    sleep_for(pause, call);
  }
  unavailable("the sandbox's pod cannot be started: " + why_none(services, record, call));
}

std::string why_weaker(const Config& config, const Json& pod, const Json& is, Provision kind) {
  const Json asked = config.provision == Provision::kSandboxClaim ? pod : held_by(maker_of(config, pod));
  std::string why = weaker_than(asked, is);
  if (why.empty() && kind == Provision::kSandboxClaim) why = other_image(asked, is);
  return why;
}

std::string owner_of(Services& services, const Record& record, const std::string& lease_uid,
                     const Budget& budget) {
  if (record.ahead.empty()) return lease_uid;
  const auto ahead = services.api.find(services.leases(record.ahead), budget);
  if (!ahead || uid_of(*ahead) != record.ahead_uid) return "";
  return belongs_to(*ahead, lease_uid) ? record.ahead_uid : "";
}

std::optional<Json> own_pod(Services& services, const Record& record, const std::string& owner,
                            const Budget& budget) {
  if (record.pod_uid.empty()) return std::nullopt;
  if (record.kind == Provision::kPod)
    return get_own(services, services.pod(record.pod), record.pod_uid, owner, budget);
  if (record.object_uid.empty() || !own_object(services, record, owner, budget)) return std::nullopt;
  if (record.kind != Provision::kSandboxClaim)
    return get_own(services, services.pod(record.pod), record.pod_uid, record.object_uid, budget);
  const Json unlabelled = {{"metadata", {{"labels", Json::object()}}}};
  auto pod = pod_of_claim(services, record, unlabelled, budget);
  return pod && uid_of(*pod) == record.pod_uid ? pod : std::nullopt;
}

std::vector<PodName> remove_pods(Services& services, const Record& record, const std::string& sandbox_id,
                                 const std::string& owner, const Budget& budget) {
  if (record.kind == Provision::kPod) {
    const auto pod = get_own(services, services.pod(record.pod), record.pod_uid, owner, budget);
    return pod ? remove_each(services, {*pod}, budget) : std::vector<PodName>();
  }
  std::string uid = record.object_uid;
  if (const auto object = own_object(services, record, owner, budget)) {
    uid = uid_of(*object);
    remove_object(services, resource_of(services, record.kind, budget, record.object), uid, budget);
  }
  if (uid.empty()) return {};
  return remove_each(services, pods_to_end(services, record, sandbox_id, uid, budget), budget);
}

std::vector<PodName> remove_leftovers(Services& services, const std::string& sandbox_id,
                                      const std::string& lease_uid, const Budget& budget) {
  return remove_each(services, pods_of(services, sandbox_id, lease_uid, budget), budget);
}

void remove_parts(Services& services, const Record& record, const std::string& sandbox_id,
                  const std::string& owner, const Budget& budget) {
  const bool may_have_claim =
      !record.claim_uid.empty() ||
      services.config.workspace == Place::kClaim;  // otherwise these credentials may not look
  const auto remove = [&](const Resource& what, const std::string& uid) {
    if (const auto there = get_own(services, what, uid, owner, budget))
      remove_object(services, what, uid_of(*there), budget);
  };
  if (may_have_claim) remove(services.claims(record.claim), record.claim_uid);
  remove(services.policies(record.ahead.empty() ? sandbox_id : record.ahead), "");
}

}  // namespace isogate::k8s
