#include "plugins/k8s/pod/measured_pod.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "lib/loopback.h"
#include "lib/text.h"
#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

constexpr const char* kSpecs[] = {"initContainers", "containers", "ephemeralContainers"};
// Kubelets forget init containers that have ended.
constexpr const char* kStatuses[] = {"containerStatuses", "ephemeralContainerStatuses"};

// The fields of each, by its name. Null: something in it is not understood.
template <size_t N>
Json named(const Json& object, const char* const (&lists)[N], std::initializer_list<const char*> fields) {
  Json found = Json::object();
  if (!object.is_object()) return nullptr;
  for (const char* list : lists) {
    const Json& all = member(object, list);
    if (!all.is_array() && !all.is_null()) return nullptr;
    for (const Json& each : all) {
      const std::string name = text_at(each, "name");
      if (name.empty() || found.contains(name)) return nullptr;
      for (const char* field : fields) found[name][field] = member(each, field);
    }
  }
  return found;
}

// Their kinds by their uids. Null: the same.
Json owners_in(const Json& metadata) {
  Json found = Json::object();
  const Json& references = member(metadata, "ownerReferences");
  if (!metadata.is_object() || !(references.is_array() || references.is_null())) return nullptr;
  for (const Json& each : references) {
    const std::string uid = text_at(each, "uid");
    if (uid.empty() || found.contains(uid)) return nullptr;
    found[uid] = member(each, "kind");
  }
  return found;
}

Json labels_in(const Json& metadata) {
  const Json& labels = member(metadata, "labels");
  if (metadata.is_object() && labels.is_null()) return Json::object();
  return labels.is_object() ? labels : Json();
}

// Missing rules let nothing through.
Json rules(const Json& spec, const char* direction) {
  const Json& found = member(spec, direction);
  return found.is_null() ? Json::array() : found;
}

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> found;
  for (std::string word; in >> word;) found.insert(word);
  return found;
}

}  // namespace

Json likeness_of(const Json& pod) {
  const Json& metadata = member(pod, "metadata");
  return {{"images", named(member(pod, "spec"), kSpecs, {"image"})},
          {"owners", owners_in(metadata)},
          {"containers", named(member(pod, "status"), kStatuses, {"containerID", "imageID", "restartCount"})},
          {"labels", labels_in(metadata)}};
}

std::string what_differs(const Json& likeness, const Json& pod) {
  const Json now = likeness_of(pod);
  if (!likeness.is_object()) return "what it was measured as is not on record";
  for (const char* part : {"images", "containers", "labels", "owners"}) {
    const Json &before = member(likeness, part), &is = now.at(part);
    if (is.is_null()) return std::string("its ") + part + " are not understood";
    if (before == is) continue;
    for (const auto& [name, value] : is.items())
      if (member(before, name.c_str()) != value)
        return std::string("its ") + part + ": " + one_line(name, 80) + " was not measured so";
    return std::string("its ") + part + " are fewer than were measured";
  }
  if (now.at("containers").empty()) return "its containers are not known";
  return "";
}

std::string what_policy_lacks(const Json& asked, const Json& is) {
  const Json &wanted = member(asked, "spec"), &spec = member(is, "spec");
  if (!spec.is_object()) return "its NetworkPolicy is not understood";
  if (member(spec, "podSelector") != member(wanted, "podSelector"))
    return "its NetworkPolicy selects other pods";
  const Json& types = member(spec, "policyTypes");
  for (const char* type : {"Ingress", "Egress"})
    if (!types.is_array() || std::find(types.begin(), types.end(), type) == types.end())
      return std::string("its NetworkPolicy does not cover ") + type;
  for (const char* direction : {"ingress", "egress"})
    if (rules(spec, direction) != rules(wanted, direction))
      return std::string("its NetworkPolicy has other rules of ") + direction;
  return "";
}

std::string tried_of(const GatewayAddresses& gateway) {
  const auto& [address, port, listeners] = gateway;
  std::set<std::string> all = words(listeners);
  if (all.empty() && port != 0) all.insert(join_address(address, std::to_string(port)));
  std::string text;
  for (const std::string& each : all)
    if (!is_loopback(split_address(each).first)) text += (text.empty() ? "" : " ") + each;
  return text;
}

bool covers(const std::string& tried, const std::string& asked) {
  const std::set<std::string> all = words(tried), wanted = words(asked);
  return std::includes(all.begin(), all.end(), wanted.begin(), wanted.end());
}

}  // namespace isogate::k8s
