#include "plugins/k8s/pod/weaker.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "plugins/k8s/client/api_error.h"
#include "plugins/k8s/client/object.h"

namespace isogate::k8s {
namespace {

using Json = nlohmann::json;

struct Rule {
  std::string_view field;
  const char* reason;
};

// Fields of a pod's spec: where it runs and its priority, never what it may do. They may differ, and a
// template may set them.
constexpr Rule kPlacement[] = {
    {"affinity", "where it runs"},
    {"nodeName", "where it runs"},
    {"nodeSelector", "where it runs"},
    {"preemptionPolicy", "what it yields to"},
    {"priorityClassName", "what it yields to"},
    {"schedulerName", "who decides where"},
    {"tolerations", "where it runs; admission adds some"},
    {"topologySpreadConstraints", "where it runs"},
};

// What else may differ.
constexpr Rule kFree[] = {
    {"fsGroupChangePolicy", "how fast volumes are made its own"},
    {"image", "a mirror's name for it; what it holds is measured"},
    {"imagePullPolicy", "AlwaysPullImages"},
    {"imagePullSecrets", "the service account's are added"},
    {"requests", "what the scheduler sets aside"},
};

// What must not be there beyond what was asked for.
constexpr Rule kNotAdded[] = {
    {"args", "runs something else"},
    {"claims", "are devices"},
    {"env", "holds secrets, or the like"},
    {"envFrom", "holds secrets"},
    {"ephemeralContainers", "runs beside the sandbox"},
    {"initContainers", "runs before the sandbox"},
    {"lifecycle", "runs programs in it"},
    {"livenessProbe", "runs programs in it, and ends it"},
    {"ports", "may be the node's"},
    {"readinessProbe", "runs programs in it"},
    {"resourceClaims", "are devices"},
    {"restartPolicy", "of an init container: runs beside the sandbox"},
    {"runtimeClassName", "is another runtime"},
    {"startupProbe", "runs programs in it"},
    {"volumeDevices", "are the node's"},
};

// To these, nothing at all may be added.
constexpr Rule kWhole[] = {
    {"capabilities", "what it may do"},    {"limits", "devices are asked for in them"},
    {"securityContext", "what it may do"}, {"volumeMounts", "what it sees"},
    {"volumes", "what it sees"},
};

// Their absence is not `false`.
constexpr Rule kTrueByDefault[] = {
    {"allowPrivilegeEscalation", "of a container"},
    {"automountServiceAccountToken", "of a pod"},
    {"enableServiceLinks", "of a pod"},
};

template <size_t N>
bool is_in(const Rule (&rules)[N], std::string_view field) {
  return std::any_of(std::begin(rules), std::end(rules),
                     [&](const Rule& each) { return each.field == field; });
}

struct Suffix {
  std::string_view text;
  double factor;
};
constexpr Suffix kSuffixes[] = {
    {"", 1},
    {"m", 1e-3},
    {"k", 1e3},
    {"M", 1e6},
    {"G", 1e9},
    {"T", 1e12},
    {"P", 1e15},
    {"Ki", 1024.0},
    {"Mi", 1048576.0},
    {"Gi", 1073741824.0},
    {"Ti", 1099511627776.0},
};

// A quantity of the API.
std::optional<double> amount_of(const Json& quantity) {
  if (quantity.is_number()) return quantity.get<double>();
  if (!quantity.is_string()) return std::nullopt;
  const auto& text = quantity.get_ref<const std::string&>();
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc()) return std::nullopt;
  const std::string_view rest(end, static_cast<size_t>(text.data() + text.size() - end));
  for (const Suffix& each : kSuffixes)
    if (rest == each.text) return number * each.factor;
  return std::nullopt;
}

// To a kubelet, 0 of something is no limit.
bool at_most(const Json& quantity, const Json& most) {
  const auto is = amount_of(quantity), may_be = amount_of(most);
  return is && may_be && (*is == *may_be || (*is > 0 && *is < *may_be));
}

// A level by itself only separates more.
bool is_harmless(std::string_view field, const Json& value) {
  for (const char* limit : {"cpu", "memory", "ephemeral-storage"})
    if (field == limit) return true;
  if (field == "procMount") return value == "Default";
  return field == "seLinuxOptions" && value.is_object() && value.size() == 1 && value.contains("level");
}

bool are_all_named(const Json& list) {
  return list.is_array() && std::all_of(list.begin(), list.end(),
                                        [](const Json& each) { return !text_at(each, "name").empty(); });
}

// Compares one object after the other; `where` is its field, which selects the rules.
class Comparison {
 public:
  std::string object(const std::string& path, std::string_view where, const Json& asked, const Json& is) {
    if (!is.is_object()) return path + " is missing";
    for (const auto& [field, value] : asked.items()) {
      if (is_in(kPlacement, field) || is_in(kFree, field)) continue;
      const auto found = is.find(field);
      std::string why = found == is.end() ? missing(path + "." + field, field, value)
                                          : member(path + "." + field, where, field, value, *found);
      if (!why.empty()) return why;
    }
    for (const auto& [field, value] : is.items())
      if (!asked.contains(field) && (is_in(kWhole, where) || is_in(kNotAdded, field)) &&
          !is_harmless(field, value))
        return path + "." + one_line(field, 60) + " was not asked for";
    return "";
  }

 private:
  static std::string missing(const std::string& path, std::string_view field, const Json& asked) {
    const bool is_default =
        (asked == Json(false) && !is_in(kTrueByDefault, field)) || (asked.is_structured() && asked.empty());
    return is_default ? "" : path + " is missing";
  }

  std::string member(const std::string& path, std::string_view where, const std::string& field,
                     const Json& asked, const Json& is) {
    if (where == "limits" || field == "sizeLimit")
      return at_most(is, asked) ? "" : path + " is more than " + asked.dump();
    if (asked.is_object()) return object(path, field, asked, is);
    if (asked.is_array() && !asked.empty() && are_all_named(asked)) return list(path, field, asked, is);
    return asked == is ? "" : path + " is not " + asked.dump();
  }

  std::string list(const std::string& path, const std::string& field, const Json& asked, const Json& is) {
    if (!are_all_named(is)) return path + " is not understood";
    if (is.size() != asked.size()) return path + " has others than were asked for";
    for (const Json& each : asked) {
      const auto found = std::find_if(is.begin(), is.end(),
                                      [&](const Json& there) { return there.at("name") == each.at("name"); });
      const std::string name = path + "[" + each.at("name").get<std::string>() + "]";
      if (found == is.end()) return name + " is missing";
      if (std::string why = object(name, field, each, *found); !why.empty()) return why;
    }
    return "";
  }
};

// Annotations by which other programs give a pod more than its spec says. The notes of networks are not among
// them.
bool weakens(const std::string& key, const Json& value) {
  const bool profile = key.starts_with("container.apparmor.security.beta.kubernetes.io/") ||
                       key.starts_with("container.seccomp.security.alpha.kubernetes.io/") ||
                       key.starts_with("seccomp.security.alpha.kubernetes.io/");
  return key == "k8s.v1.cni.cncf.io/networks" || key == "v1.multus-cni.io/default-network" ||
         key.find("crio.io") != std::string::npos || key.starts_with("io.kubernetes.cri-o.") ||
         key.starts_with("dev.gvisor.") || key.starts_with("io.katacontainers.") ||
         (profile && value == "unconfined");
}

std::string added_annotation(const Json& asked, const Json& is) {
  if (!is.is_object() && !is.is_null()) return "metadata.annotations is not understood";
  for (const auto& [key, value] : is.items())
    if (weakens(key, value) && asked.value(key, Json()) != value)
      return "metadata.annotations." + one_line(key, 80) + " was not asked for";
  return "";
}

}  // namespace

bool may_be_in_template(std::string_view field) { return is_in(kPlacement, field); }

std::string weaker_than(const Json& asked, const Json& pod) {
  if (!pod.is_object() || !pod.contains("metadata") || !pod.contains("spec")) return "it is not understood";
  Comparison comparison;
  const Json &own = asked.at("metadata"), &its = pod.at("metadata");
  std::string why = comparison.object("metadata.labels", "labels", own.value("labels", Json::object()),
                                      member(its, "labels"));
  if (why.empty())
    why = added_annotation(own.value("annotations", Json::object()), member(its, "annotations"));
  if (why.empty()) why = comparison.object("spec", "spec", asked.at("spec"), pod.at("spec"));
  return why;
}

}  // namespace isogate::k8s
