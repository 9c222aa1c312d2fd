#include "plugins/k8s/pod/sandbox_claim.h"

#include <nlohmann/json.hpp>

#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/pod/weaker.h"

namespace isogate::k8s {
namespace {

constexpr const char* kPodName = "agents.x-k8s.io/pod-name";  // an annotation of a Sandbox

Resource extension(const Services& services, const char* plural, const std::string& name) {
  return {kAgentsExtensions, services.name_space, plural, name};
}

bool has_labels_of(const Json& pod, const Json& asked) {
  const Json& labels = member(member(pod, "metadata"), "labels");
  for (const auto& [key, value] : asked.at("metadata").at("labels").items())
    if (member(labels, key.c_str()) != value) return false;
  return true;
}

// A policy that is not understood counts as open.
bool is_closed(const Json& policy) {
  return policy.is_object() && member(policy, "ingress").empty() && member(policy, "egress").empty();
}

// Policies add up: what one allows, no other denies. The template has one for all its pods, old and new.
std::string why_open(Services& services, const std::string& of, const Json& spec, const Budget& budget) {
  const std::string text = "the SandboxTemplate `" + of + "` ";
  if (text_at(spec, "networkPolicyManagement") != "Unmanaged" && !is_closed(member(spec, "networkPolicy")))
    return text +
           "lets packets through: write networkPolicyManagement: Unmanaged into it, or networkPolicy: {}";
  const auto made = services.api.find(services.policies(of + "-network-policy"), budget);
  if (made && !is_closed(member(*made, "spec")))
    return text + "has a NetworkPolicy that lets packets through, `" + of + "-network-policy`: delete it";
  return "";
}

// Anything that does not fit the API's schema.
[[noreturn]] void not_understood(const Json::exception& error) {
  unavailable(std::string("what the cluster says of SandboxClaims is not understood: ") + error.what());
}

}  // namespace

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
                                 const Budget& budget) try {
  const Json claim = services.api.get(extension(services, "sandboxclaims", record.object), budget);
  const std::string name = text_at(member(member(claim, "status"), "sandbox"), "name");
  if (name.empty()) return std::nullopt;
  const auto sandbox = services.api.find(services.sandbox_object(name, budget), budget);
  if (!sandbox || !belongs_to(*sandbox, record.object_uid)) return std::nullopt;
  const std::string noted = text_at(member(member(*sandbox, "metadata"), "annotations"), kPodName);
  auto pod = services.api.find(services.pod(noted.empty() ? name : noted), budget);
  if (!pod || !belongs_to(*pod, uid_of(*sandbox)) || !has_labels_of(*pod, asked)) return std::nullopt;
  return pod;
} catch (const Json::exception& error) {
  not_understood(error);
}

std::string why_pool_unfit(Services& services, const Json& pod, const Budget& budget) try {
  const std::string& name = services.config.sandbox_pool;
  const auto pool = services.api.find(extension(services, "sandboxwarmpools", name), budget);
  if (!pool) return "there is no SandboxWarmPool `" + name + "` in it: deploy/k8s/sandbox-pool.yaml has one";
  const std::string of = text_at(member(member(*pool, "spec"), "sandboxTemplateRef"), "name");
  if (of.empty()) return "the SandboxWarmPool `" + name + "` names no SandboxTemplate";
  const auto made_of = services.api.find(extension(services, "sandboxtemplates", of), budget);
  if (!made_of)
    return "the SandboxTemplate `" + of + "` of the SandboxWarmPool `" + name + "` does not exist";
  const Json& spec = member(*made_of, "spec");
  if (std::string why = why_open(services, of, spec, budget); !why.empty()) return why;
  const std::string text = "the SandboxTemplate `" + of + "` ";
  if (!member(spec, "volumeClaimTemplates").empty())
    return text + "has volumeClaimTemplates: what they mount was not asked for";
  Json asked = pod, given = {{"metadata", member(member(spec, "podTemplate"), "metadata")},
                             {"spec", member(member(spec, "podTemplate"), "spec")}};
  asked["metadata"]["labels"] = given["metadata"]["labels"] = Json::object();
  std::string weaker = weaker_than(asked, given);
  if (weaker.empty()) weaker = other_image(asked, given);
  return weaker.empty() ? "" : text + "makes other pods than this configuration asks for: " + weaker;
} catch (const Json::exception& error) {
  not_understood(error);
}

std::string other_image(const Json& asked, const Json& pod) try {
  for (const char* list : {"initContainers", "containers"}) {
    const Json& all = pod.at("spec").at(list);
    for (const Json& wanted : asked.at("spec").at(list)) {
      const std::string name = wanted.at("name").get<std::string>();
      const auto is =
          std::find_if(all.begin(), all.end(), [&](const Json& each) { return each.at("name") == name; });
      if (is == all.end() || is->at("image") != wanted.at("image"))
        return std::string("spec.") + list + "[" + name + "].image is not " + wanted.at("image").dump();
    }
  }
  return "";
} catch (const Json::exception& error) {
  not_understood(error);
}

}  // namespace isogate::k8s
