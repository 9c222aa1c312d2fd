#include "plugins/k8s/sandbox_claim.h"

#include <nlohmann/json.hpp>

#include "plugins/k8s/profile.h"
#include "plugins/k8s/weaker.h"

namespace isogate::k8s {
namespace {

constexpr const char* kPodName = "agents.x-k8s.io/pod-name";  // an annotation of a Sandbox

const Json& member(const Json& object, const char* key) {
  static const Json kNone = Json::object();
  const auto found = object.find(key);
  return found != object.end() && found->is_object() ? *found : kNone;
}

Resource extension(const Services& services, const char* plural, const std::string& name) {
  return {kAgentsExtensions, services.name_space, plural, name};
}

std::optional<Json> get(Services& services, const Resource& what, const Budget& budget) {
  try {
    return services.api.get(what, budget);
  } catch (const ApiError& error) {
    if (error.status() != ISOGATE_NOT_FOUND) throw;
    return std::nullopt;
  }
}

bool has_labels_of(const Json& pod, const Json& asked) {
  const Json& labels = member(member(pod, "metadata"), "labels");
  for (const auto& [key, value] : asked.at("metadata").at("labels").items())
    if (labels.value(key, Json()) != value) return false;
  return true;
}

// Policies add up: what one lets out no other keeps in.
bool lets_nothing_through(const Json& spec) {
  if (spec.value("networkPolicyManagement", "Managed") == "Unmanaged") return true;
  if (!spec.contains("networkPolicy")) return false;
  const Json& policy = member(spec, "networkPolicy");
  return policy.value("ingress", Json::array()).empty() && policy.value("egress", Json::array()).empty();
}

}  // namespace

std::string agents_version(Services& services, const Budget& budget) {
  ApiRequest request{"GET", std::string("/apis/") + kAgentsGroup};
  request.attempt = std::string("ask for the versions of ") + kAgentsGroup;
  std::string found = "v1beta1";
  try {
    const Json group = services.api.call(request, budget);
    bool newer = false, older = false;
    for (const Json& each : group.value("versions", Json::array())) {
      newer |= each.value("version", "") == "v1beta1";
      older |= each.value("version", "") == "v1alpha1";
    }
    if (older && !newer) found = "v1alpha1";
  } catch (const ApiError& error) {  // what it is asked for next says the same, and more
    if (error.http_status() != 404) throw;
  }
  return std::string(kAgentsGroup) + "/" + found;
}

Json sandbox_claim_of(const Config& config, const Json& pod) {
  const Json& metadata = pod.at("metadata");
  Json own = metadata;
  own["labels"] = own_labels_of(metadata.at("labels"));
  return {{"apiVersion", kAgentsExtensions},
          {"kind", "SandboxClaim"},
          {"metadata", std::move(own)},
          {"spec",
           {{"warmPoolRef", {{"name", config.sandbox_pool}}},
            {"additionalPodMetadata",
             {{"labels", metadata.at("labels")}, {"annotations", metadata.at("annotations")}}}}}};
}

std::optional<Json> pod_of_claim(Services& services, const Record& record, const Json& asked,
                                 const Budget& budget) {
  const Json claim = services.api.get(extension(services, "sandboxclaims", record.object), budget);
  const std::string name = member(member(claim, "status"), "sandbox").value("name", "");
  if (name.empty()) return std::nullopt;
  const auto sandbox = get(services, services.sandbox_object(name), budget);
  if (!sandbox || !belongs_to(*sandbox, record.object_uid)) return std::nullopt;
  const Json& metadata = sandbox->at("metadata");
  auto pod = get(services, services.pod(member(metadata, "annotations").value(kPodName, name)), budget);
  if (!pod || !belongs_to(*pod, metadata.at("uid")) || !has_labels_of(*pod, asked)) return std::nullopt;
  return pod;
}

std::string why_pool_unfit(Services& services, const Json& pod, const Budget& budget) {
  const std::string& name = services.config.sandbox_pool;
  const auto pool = get(services, extension(services, "sandboxwarmpools", name), budget);
  if (!pool) return "there is no SandboxWarmPool `" + name + "` in it: deploy/k8s/sandbox-pool.yaml has one";
  const std::string of = member(member(*pool, "spec"), "sandboxTemplateRef").value("name", "");
  const auto made_of = get(services, extension(services, "sandboxtemplates", of), budget);
  if (!made_of)
    return "the SandboxTemplate `" + of + "` of the SandboxWarmPool `" + name + "` does not exist";
  const Json& spec = member(*made_of, "spec");
  const std::string text = "the SandboxTemplate `" + of + "` ";
  if (!lets_nothing_through(spec))
    return text +
           "lets packets through: write networkPolicy: {} into it, or networkPolicyManagement: Unmanaged";
  Json asked = pod, given = {{"metadata", member(member(spec, "podTemplate"), "metadata")},
                             {"spec", member(member(spec, "podTemplate"), "spec")}};
  asked["metadata"]["labels"] = given["metadata"]["labels"] = Json::object();
  const std::string weaker = weaker_than(asked, given);
  return weaker.empty() ? "" : text + "makes weaker pods than this configuration asks for: " + weaker;
}

}  // namespace isogate::k8s
