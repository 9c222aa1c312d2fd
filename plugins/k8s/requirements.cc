#include "plugins/k8s/requirements.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "lib/hash.h"
#include "lib/text.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"
#include "plugins/k8s/pod/provision.h"
#include "plugins/k8s/pod/weaker.h"

namespace isogate::k8s {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLookAgain{5};
constexpr const char* kEnforce = "pod-security.kubernetes.io/enforce";

struct Need {
  const char *group, *resource, *subresource, *verbs;
  const char* role = "deploy/k8s/rbac.yaml";  // the file that has it
  bool of_cluster = false;                    // in no namespace
};
// With the verbs that each needs.
std::vector<Need> needs_of(const Config& config) {
  std::vector<Need> needs = {
      {"", "pods", "", "create delete get list watch"},
      {"", "pods", "exec", "create get"},
      {"coordination.k8s.io", "leases", "", "create delete get list update"},
      {"networking.k8s.io", "networkpolicies", "", "create delete get"},
  };
  const auto add = [&](bool wanted, std::initializer_list<Need> more) {
    if (wanted) needs.insert(needs.end(), more);
  };
  add(config.workspace == Place::kClaim, {{"", "persistentvolumeclaims", "", "create delete get"}});
  add(config.liveness_interval_sec > 0, {{"", "pods", "log", "get"}});
  const char* const makers = "deploy/k8s/rbac-makers.yaml";
  add(config.provision == Provision::kJob, {{"batch", "jobs", "", "create delete get", makers}});
  add(config.provision == Provision::kSandbox,
      {{"agents.x-k8s.io", "sandboxes", "", "create delete get", makers}});
  add(config.provision == Provision::kSandboxClaim,
      {{"extensions.agents.x-k8s.io", "sandboxclaims", "", "create delete get", makers},
       {"extensions.agents.x-k8s.io", "sandboxtemplates", "", "get", makers},
       {"extensions.agents.x-k8s.io", "sandboxwarmpools", "", "get", makers},
       {"agents.x-k8s.io", "sandboxes", "", "get", makers}});
  add(config.vm, {{"", "nodes", "", "get", "deploy/k8s/rbac-nodes.yaml", true}});
  return needs;
}

bool may(Services& services, const Need& need, const std::string& verb, const Budget& budget) {
  const Json review = {{"apiVersion", "authorization.k8s.io/v1"},
                       {"kind", "SelfSubjectAccessReview"},
                       {"spec",
                        {{"resourceAttributes",
                          {{"namespace", need.of_cluster ? "" : services.name_space},
                           {"group", need.group},
                           {"resource", need.resource},
                           {"subresource", need.subresource},
                           {"verb", verb}}}}}};
  const Json answer =
      services.api.create({"authorization.k8s.io/v1", "", "selfsubjectaccessreviews"}, review, budget);
  return member(member(answer, "status"), "allowed") == true;
}

std::string why_not_allowed(Services& services, const Budget& budget) {
  std::string lacks;
  std::set<std::string> roles;
  for (const Need& need : needs_of(services.config)) {
    const std::string what =
        std::string(need.resource) + (*need.subresource != 0 ? "/" : "") + need.subresource;
    for (const std::string_view each : split(need.verbs, ' ')) {
      const std::string verb(each);
      if (may(services, need, verb, budget)) continue;
      lacks += (lacks.empty() ? "" : ", ") + verb + " " + what;
      roles.insert(need.role);
    }
  }
  if (lacks.empty()) return "";
  return "for the namespace `" + services.name_space + "` these credentials may not " + lacks +
         ": the roles are in " + join(roles, ", ");
}

// A refusal because of existing sandboxes: it says nothing about admission.
bool is_quota(const std::string& why) { return why.find("exceeded quota") != std::string::npos; }

// `made`: what it is created as. A Job's pods are also tried as pods: they are admitted long after the Job.
bool admits(Services& services, const Json& pod, std::string& why, const Budget& budget,
            Json* made = nullptr) {
  try {
    Json answer = services.api.create(services.pod(), pod, budget, {{"dryRun", "All"}});
    if (made != nullptr) *made = std::move(answer);
    return true;
  } catch (const NetError& error) {
    const bool no_namespace = std::string_view(error.what()).find("namespaces \"") != std::string_view::npos;
    if (error.status() == ISOGATE_NOT_FOUND && no_namespace)
      unavailable("the namespace `" + services.name_space +
                  "` does not exist: create it, with deploy/k8s/rbac.yaml");
    if (error.http_status() != 403 && error.http_status() != 422 && error.http_status() != 400) throw;
    why = error.what();
    return false;
  }
}

// As far as these credentials may read it.
bool is_labelled(Services& services, const Budget& budget) try {
  const Json space = services.api.get({"v1", "", "namespaces", services.name_space}, budget);
  return text_at(member(member(space, "metadata"), "labels"), kEnforce) == "restricted";
} catch (const NetError&) {
  return false;
}

std::string how_to_enforce(Services& services, const Budget& budget) {
  const std::string label = std::string(kEnforce) + "=restricted";
  const std::string account =
      "the service account of deploy/k8s/rbac.yaml (with a PodSecurityPolicy of its own on clusters before "
      "1.25)";
  const std::string how = is_labelled(services, budget)
                              ? "its label " + label + " is not enforced for them: use " + account
                              : "label it " + label + ", or, where that is not enforced, use " + account;
  return how + ", or write allow_unenforced_admission: true";
}

// Whoever may create any pod is root on its node, and so has everything there. Our own pod is admitted: so if
// one addition makes it refused, the addition is what is refused.
std::string why_not_admitted(Services& services, const Budget& budget) {
  const std::string& space = services.name_space;
  Parts parts = services.any;
  parts.owner = {"isogate", "probe", "isogate-probe-" + random_hex(4)};
  parts.pod = parts.claim = parts.tenant = parts.agent_id = parts.owner.sandbox_id;
  const Json own = pod_of(services.config, parts, limits_of(services.config, {}));
  std::string why;
  Json made;
  if (!admits(services, own, why, budget, &made))
    return "the namespace `" + space + "` does not admit the pods of this backend: " + why;
  if (const std::string weaker = weaker_than(own, made); !weaker.empty())
    return "the namespace `" + space + "` makes weaker pods of this backend's: " + weaker;
  if (services.config.provision != Provision::kPod) why = why_not_taken(services, own, budget);
  if (!why.empty()) return "the namespace `" + space + "` cannot hold sandboxes: " + why;
  if (services.config.allow_unenforced_admission) return "";
  for (const Escape& each : escapes_of(own)) {
    if (admits(services, each.pod, why, budget))
      return "the namespace `" + space + "` admits a pod with " + each.what +
             ", so these credentials are root on the cluster's nodes: " + how_to_enforce(services, budget);
    if (is_quota(why)) return "whether the namespace admits any pod cannot be tried: " + why;
  }
  return "";
}

// Pods that no gateway created; only a person can judge the rest of a namespace.
std::string strangers_in(Services& services, const Budget& budget) {
  const Json pods =
      services.api.list(services.pod(), {"app.kubernetes.io/managed-by!=isogate", "", 500}, budget);
  const size_t count = pods.at("items").size();
  if (count == 0) return "";
  return std::to_string(count) +
         " pods in it are not isogate's: whoever may create pods there reaches them, give "
         "the sandboxes a namespace of their own";
}

std::string version_of(Services& services, const Budget& budget) {
  ApiRequest request{"GET", "/version"};
  request.attempt = "ask for the version of the API server";
  const std::string version = one_line(text_at(services.api.call(request, budget), "gitVersion"), 60);
  return version.empty() ? "of an unknown version" : version;
}

}  // namespace

std::string Requirements::look_in_full(Services& services, const Budget& budget) {
  std::string text = "Kubernetes " + version_of(services, budget);
  std::string why = why_not_allowed(services, budget);
  if (why.empty()) why = why_not_admitted(services, budget);
  if (is_quota(why) && was_fine_) {  // the earlier proof stays valid; running sandboxes are served
    text += "; " + std::exchange(why, "");
  }
  if (why.empty()) {
    const std::string strangers = strangers_in(services, budget);
    if (!strangers.empty()) {
      services.warn_once("the namespace `" + services.name_space + "`: " + strangers);
      text += "; " + strangers;
    }
  }
  const std::lock_guard lock(mutex_);
  text_ = text;
  fine_since_.reset();
  if (why.empty()) {
    fine_since_ = Clock::now();
    was_fine_ = true;
  }
  return why;
}

std::string Requirements::why_not(Services& services, const Budget& budget) {
  bool fresh = false;
  {
    const std::lock_guard lock(mutex_);
    fresh = fine_since_ && Clock::now() - *fine_since_ < kLookAgain;
  }
  if (!fresh) return look_in_full(services, budget);
  services.api.list(services.pod(), {"isogate.io/sandbox=none", "", 1}, budget);
  return "";
}

std::string Requirements::text() const {
  const std::lock_guard lock(mutex_);
  return text_;
}

}  // namespace isogate::k8s
