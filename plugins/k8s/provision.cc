#include "plugins/k8s/provision.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "plugins/k8s/profile.h"
#include "plugins/k8s/sandbox_claim.h"
#include "plugins/k8s/weaker.h"

namespace isogate::k8s {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kFirstPause{30}, kLongestPause{1'000};

[[noreturn]] void unavailable(const std::string& why) { throw sdk::Error(ISOGATE_UNAVAILABLE, why); }

std::string uid_of(const Json& object) {
  return object.value("metadata", Json::object()).value("uid", std::string());
}

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

// What a controller makes pods of: it names them, and owns them.
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

// The pod in what makes it.
Json held_by(const Json& made) {
  const Json spec = made.value("spec", Json::object());
  for (const char* member : {"template", "podTemplate"})
    if (spec.contains(member)) return spec.at(member);
  return made;
}

// In the version that the cluster serves.
Json body_of(Services& services, const Json& pod, Provision kind, const Budget& budget) {
  Json body = maker_of(services.config, pod);
  body["apiVersion"] = resource_of(services, kind, budget).group_version;
  return body;
}

void refuse_weaker(const Json& asked, const Json& pod, Provision kind = Provision::kPod) {
  std::string why = weaker_than(asked, pod);
  if (why.empty() && kind == Provision::kSandboxClaim) why = other_image(asked, pod);
  if (!why.empty())
    unavailable("the cluster made a weaker pod than it was asked for: " + why + "; nothing runs in it");
}

// What the pod has to be at least: with a controller's in between, as it is asked for.
Json expected_of(const Config& config, const Json& pod) {
  return config.provision == Provision::kSandboxClaim ? pod : held_by(maker_of(config, pod));
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

// Of those that tenants may come to be in.
std::vector<Json> candidates(Services& services, const Json& pod, const Record& record,
                             const Budget& budget) {
  if (record.kind != Provision::kSandboxClaim)
    return pods_of(services, pod.at("metadata").at("labels").at(kLabelSandbox), record.object_uid, budget);
  auto found = pod_of_claim(services, record, pod, budget);
  return found ? std::vector<Json>{std::move(*found)} : std::vector<Json>();
}

// What the object itself says of having no pod.
std::string why_none(Services& services, const Record& record, const Budget& budget) {
  const Json object = services.api.get(resource_of(services, record.kind, budget, record.object), budget);
  const std::string name = std::string(maker(record.kind).what) + " " + record.object;
  std::string why = name + " has no pod: does its controller run? `kubectl describe` may say more";
  const Json conditions = object.value("status", Json::object()).value("conditions", Json::array());
  for (const Json& each : conditions)
    if (const std::string said = each.value("message", ""); !said.empty())
      why = name + " has no pod: " + printable(said);
  return why;
}

std::optional<PodName> remove_pod(Services& services, const Record& record, const std::string& uid,
                                  const Budget& budget) {
  if (uid.empty() || !remove_object(services, services.pod(record.pod), uid, budget)) return std::nullopt;
  return PodName{record.pod, uid};
}

std::optional<PodName> remove_bare_pod(Services& services, const Record& record, const Budget& budget) {
  // Without its uid it was about to be made: then it is ours by its name, which nobody could guess.
  const bool named = record.pod_uid.empty() && !record.pod.empty();
  return remove_pod(services, record, named ? services.pods.look(record.pod, budget).uid : record.pod_uid,
                    budget);
}

// Of an object that was about to be made, likewise; and it has to be the Lease's.
std::string uid_by_name(Services& services, const Record& record, const std::string& lease_uid,
                        const Budget& budget) {
  try {
    const Json there = services.api.get(resource_of(services, record.kind, budget, record.object), budget);
    return belongs_to(there, lease_uid) ? uid_of(there) : "";
  } catch (const ApiError& error) {
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    return "";
  }
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
  } catch (const ApiError& error) {
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
  if (record.kind == Provision::kPod) refuse_weaker(pod, made);
}

void find_pod(Services& services, const Json& pod, Record& record, const sdk::Call& call, milliseconds most) {
  if (record.kind == Provision::kPod) return;
  const auto until = Clock::now() + most;
  for (milliseconds pause = kFirstPause; Clock::now() < until; pause = std::min(2 * pause, kLongestPause)) {
    for (const Json& each : candidates(services, pod, record, call)) {
      if (state_of(each).ended) continue;
      record.pod = each.at("metadata").at("name");
      record.pod_uid = uid_of(each);
      return refuse_weaker(expected_of(services.config, pod), each, record.kind);
    }
    call.check();
    std::this_thread::sleep_for(pause);
  }
  unavailable("the sandbox's pod cannot be started: " + why_none(services, record, call));
}

std::optional<PodName> remove_pods(Services& services, const Record& record, const std::string& sandbox_id,
                                   const std::string& lease_uid, const Budget& budget) {
  if (record.kind == Provision::kPod) return remove_bare_pod(services, record, budget);
  const std::string uid =
      record.object_uid.empty() ? uid_by_name(services, record, lease_uid, budget) : record.object_uid;
  if (uid.empty()) return std::nullopt;
  remove_object(services, resource_of(services, record.kind, budget, record.object), uid, budget);
  const bool pooled = record.kind == Provision::kSandboxClaim;  // then none but the recorded one is its own
  for (const Json& each : pooled ? std::vector<Json>() : pods_of(services, sandbox_id, uid, budget))
    if (uid_of(each) != record.pod_uid)
      remove_object(services, services.pod(each.at("metadata").at("name")), uid_of(each), budget);
  return remove_pod(services, record, record.pod_uid, budget);
}

}  // namespace isogate::k8s
