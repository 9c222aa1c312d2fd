#include "plugins/k8s/measured_pod.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "plugins/k8s/api_error.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

const Json& member(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

constexpr const char* kSpecs[] = {"initContainers", "containers", "ephemeralContainers"};
// Kubelets forget init containers that have ended.
constexpr const char* kStatuses[] = {"containerStatuses", "ephemeralContainerStatuses"};

Json named(const Json& all, std::initializer_list<const char*> fields) {
  Json found = Json::object();
  if (!all.is_array()) return found;
  for (const Json& each : all) {
    const Json& name = member(each, "name");
    if (!name.is_string()) continue;
    Json& one = found[name.get<std::string>()];
    for (const char* field : fields) one[field] = member(each, field);
  }
  return found;
}

// Rules that are not there let nothing through.
Json rules(const Json& spec, const char* direction) {
  const Json& found = member(spec, direction);
  return found.is_array() ? found : Json::array();
}

bool is_loopback(const std::string& listener) {
  return listener.starts_with("127.") || listener.starts_with("[::1]") ||
         listener.starts_with("[::ffff:127.");
}

std::set<std::string> words(const std::string& text) {
  std::istringstream in(text);
  std::set<std::string> found;
  for (std::string word; in >> word;) found.insert(word);
  return found;
}

}  // namespace

Json likeness_of(const Json& pod) {
  const Json &spec = member(pod, "spec"), &status = member(pod, "status");
  Json images = Json::object(), containers = Json::object();
  for (const char* kind : kSpecs) images.update(named(member(spec, kind), {"image"}));
  for (const char* kind : kStatuses)
    containers.update(named(member(status, kind), {"containerID", "imageID", "restartCount"}));
  const Json& labels = member(member(pod, "metadata"), "labels");
  const Json& references = member(member(pod, "metadata"), "ownerReferences");
  Json owners = Json::object();
  if (references.is_array())
    for (const Json& each : references) owners[each.value("uid", "")] = each.value("kind", "");
  return {{"images", images},
          {"owners", owners},
          {"containers", containers},
          {"labels", labels.is_object() ? labels : Json::object()}};
}

std::string what_differs(const Json& likeness, const Json& pod) {
  const Json now = likeness_of(pod);
  if (!likeness.is_object()) return "what it was measured as is not on record";
  for (const char* part : {"images", "containers", "labels", "owners"}) {
    const Json& before = member(likeness, part);
    if (before == now.at(part)) continue;
    for (const auto& [name, value] : now.at(part).items())
      if (!before.is_object() || before.value(name, Json()) != value)
        return std::string("its ") + part + ": " + printable(name, 80) + " was not measured so";
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
      return std::string("its NetworkPolicy does not speak of ") + type;
  for (const char* direction : {"ingress", "egress"})
    if (rules(spec, direction) != rules(wanted, direction))
      return std::string("its NetworkPolicy has other rules of ") + direction;
  return "";
}

std::string tried_of(const std::string& address, uint32_t port, const std::string& listeners) {
  std::set<std::string> all = words(listeners);
  if (all.empty() && port != 0) {
    const bool six = address.find(':') != std::string::npos;
    all.insert((six ? "[" + address + "]" : address) + ":" + std::to_string(port));
  }
  std::string text;
  for (const std::string& each : all)
    if (!is_loopback(each)) text += (text.empty() ? "" : " ") + each;
  return text;
}

bool covers(const std::string& tried, const std::string& asked) {
  const std::set<std::string> all = words(tried), wanted = words(asked);
  return std::includes(all.begin(), all.end(), wanted.begin(), wanted.end());
}

}  // namespace isogate::k8s
