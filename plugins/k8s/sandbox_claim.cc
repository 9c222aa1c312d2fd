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

bool is_closed(const Json& policy) {
  const auto none = [&](const char* rules) {
    const auto found = policy.find(rules);
    return found == policy.end() || found->empty();
  };
  return none("ingress") && none("egress");
}

// Policies add up: what one lets out no other keeps in. The template's is one for all its pods, old and new.
std::string why_open(Services& services, const std::string& of, const Json& spec, const Budget& budget) {
  const std::string text = "the SandboxTemplate `" + of + "` ";
  if (spec.value("networkPolicyManagement", "Managed") != "Unmanaged" &&
      !(spec.value("networkPolicy", Json()).is_object() && is_closed(spec.at("networkPolicy"))))
    return text +
           "lets packets through: write networkPolicyManagement: Unmanaged into it, or networkPolicy: {}";
  const auto made = get(services, services.policies(of + "-network-policy"), budget);
  if (made && !is_closed(member(*made, "spec")))
    return text + "has a NetworkPolicy that lets packets through, `" + of + "-network-policy`: delete it";
  return "";
}

// Whatever is not as the API's schema has it.
template <typename Function>
auto understood(const Function& function) -> decltype(function()) {
  try {
    return function();
  } catch (const Json::exception& error) {
    throw sdk::Error(
        ISOGATE_UNAVAILABLE,
        std::string("what the cluster says of SandboxClaims is not understood: ") + error.what());
  }
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

namespace {

std::optional<Json> find_claimed(Services& services, const Record& record, const Json& asked,
                                 const Budget& budget) {
  const Json claim = services.api.get(extension(services, "sandboxclaims", record.object), budget);
  const std::string name = member(member(claim, "status"), "sandbox").value("name", "");
  if (name.empty()) return std::nullopt;
  const auto sandbox = get(services, services.sandbox_object(name, budget), budget);
  if (!sandbox || !belongs_to(*sandbox, record.object_uid)) return std::nullopt;
  const Json& metadata = sandbox->at("metadata");
  auto pod = get(services, services.pod(member(metadata, "annotations").value(kPodName, name)), budget);
  if (!pod || !belongs_to(*pod, metadata.at("uid")) || !has_labels_of(*pod, asked)) return std::nullopt;
  return pod;
}

std::string why_unfit(Services& services, const Json& pod, const Budget& budget) {
  const std::string& name = services.config.sandbox_pool;
  const auto pool = get(services, extension(services, "sandboxwarmpools", name), budget);
  if (!pool) return "there is no SandboxWarmPool `" + name + "` in it: deploy/k8s/sandbox-pool.yaml has one";
  const std::string of = member(member(*pool, "spec"), "sandboxTemplateRef").value("name", "");
  const auto made_of = get(services, extension(services, "sandboxtemplates", of), budget);
  if (!made_of)
    return "the SandboxTemplate `" + of + "` of the SandboxWarmPool `" + name + "` does not exist";
  const Json& spec = member(*made_of, "spec");
  if (std::string why = why_open(services, of, spec, budget); !why.empty()) return why;
  const std::string text = "the SandboxTemplate `" + of + "` ";
  if (!spec.value("volumeClaimTemplates", Json::array()).empty())
    return text + "has volumeClaimTemplates: what they mount was not asked for";
  Json asked = pod, given = {{"metadata", member(member(spec, "podTemplate"), "metadata")},
                             {"spec", member(member(spec, "podTemplate"), "spec")}};
  asked["metadata"]["labels"] = given["metadata"]["labels"] = Json::object();
  std::string weaker = weaker_than(asked, given);
  if (weaker.empty()) weaker = other_image(asked, given);
  return weaker.empty() ? "" : text + "makes other pods than this configuration asks for: " + weaker;
}

}  // namespace

std::string other_image(const Json& asked, const Json& pod) {
  return understood([&]() -> std::string {
    for (const char* list : {"initContainers", "containers"}) {
      const Json &wanted = asked.at("spec").at(list).at(0), &is = pod.at("spec").at(list).at(0);
      if (is.at("image") != wanted.at("image"))
        return std::string("spec.") + list + "[" + wanted.at("name").get<std::string>() + "].image is not " +
               wanted.at("image").dump();
    }
    return "";
  });
}

std::optional<Json> pod_of_claim(Services& services, const Record& record, const Json& asked,
                                 const Budget& budget) {
  return understood([&] { return find_claimed(services, record, asked, budget); });
}

std::string why_pool_unfit(Services& services, const Json& pod, const Budget& budget) {
  return understood([&] { return why_unfit(services, pod, budget); });
}

}  // namespace isogate::k8s
