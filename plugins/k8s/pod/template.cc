#include "plugins/k8s/pod/template.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "isogate/backend.hpp"
#include "plugins/common/config_checks.h"
#include "plugins/k8s/pod/weaker.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

// Annotations by which other programs give a pod more than its spec says. By the prefix of their keys.
struct Harmful {
  const char* key;
  const char* reason;
};
constexpr Harmful kHarmful[] = {
    {"cni.projectcalico.org/", "its addresses and networks"},
    {"container.apparmor.security.beta.kubernetes.io/", "its AppArmor profile"},
    {"container.seccomp.security.alpha.kubernetes.io/", "its system call filter"},
    {"dev.gvisor.", "gVisor's flags"},
    {"io.katacontainers.", "the settings of its virtual machine"},
    {"io.kubernetes.cri-o.", "devices, mounts and filters of CRI-O"},
    {"io.kubernetes.cri.", "settings of containerd"},
    {"k8s.ovn.org/", "its networks"},
    {"k8s.v1.cni.cncf.io/", "further networks by Multus"},
    {"ovn.kubernetes.io/", "its networks"},
    {"policy.cilium.io/", "what of its packets is looked at"},
    {"seccomp.security.alpha.kubernetes.io/", "its system call filter"},
    {"v1.multus-cni.io/", "another network by Multus"},
};

bool is_harmful(const std::string& annotation) {
  return std::any_of(std::begin(kHarmful), std::end(kHarmful),
                     [&](const Harmful& each) { return annotation.starts_with(each.key); });
}

bool all_named(const Json& list) {
  return list.is_array() && !list.empty() && std::all_of(list.begin(), list.end(), [](const Json& each) {
           return each.is_object() && each.contains("name") && each["name"].is_string();
         });
}

void overlay_list(Json& list, const Json& addition) {
  for (const Json& each : addition) {
    const auto same = std::find_if(list.begin(), list.end(),
                                   [&](const Json& there) { return there.at("name") == each.at("name"); });
    if (same == list.end())
      list.push_back(each);
    else
      overlay(*same, each);
  }
}

}  // namespace

void check_template(const Json& addition, bool weaker) {
  const Json metadata = addition.value("metadata", Json::object());
  for (const char* kind : {"labels", "annotations"}) {
    const Json texts = metadata.value(kind, Json::object());
    for (const auto& [key, value] : texts.items())
      if (key.find("isogate.io/") != std::string::npos)
        refuse("template of `k8s`: `" + key + "` is for this backend to write");
  }
  const Json annotations = metadata.value("annotations", Json::object());
  for (const auto& [key, value] : annotations.items())
    if (!weaker && is_harmful(key))
      refuse("template of `k8s`: the annotation `" + key +
             "` could weaken a pod; allow_weaker_template: true admits it, and is listed as a relaxation");
  const Json spec = addition.value("spec", Json::object());
  for (const auto& [key, value] : spec.items())
    if (!weaker && !may_be_in_template(key))
      refuse("template of `k8s`: `spec." + key +
             "` could weaken a pod; allow_weaker_template: true admits it, and is listed as a relaxation");
}

void overlay(Json& pod, const Json& addition) {
  if (!addition.is_object()) {
    pod = addition;
    return;
  }
  if (!pod.is_object()) pod = Json::object();
  for (const auto& [key, value] : addition.items()) {
    if (value.is_null())
      pod.erase(key);
    else if (pod.contains(key) && all_named(pod[key]) && all_named(value))
      overlay_list(pod[key], value);
    else if (value.is_object())
      overlay(pod[key], value);
    else
      pod[key] = value;
  }
}

}  // namespace isogate::k8s
