#include "plugins/k8s/services.h"

#include <unistd.h>

#include <climits>
#include <nlohmann/json.hpp>

#include "lib/hash.h"
#include "plugins/k8s/client/object.h"
#include "plugins/k8s/pod/profile.h"

namespace isogate::k8s {
namespace {

constexpr const char* kCoordination = "coordination.k8s.io/v1";
constexpr const char* kNetworking = "networking.k8s.io/v1";

// One state directory is one gateway. A reader of Leases learns no host's name.
std::string name_of_holder(const sdk::Host& host) {
  char name[HOST_NAME_MAX + 1] = {};
  ::gethostname(name, sizeof name - 1);
  const std::string directory(sdk::view(host.abi().sandboxes_dir));
  return sha256_hex(std::string(name) + "/" + directory).substr(0, 32);
}

}  // namespace

Parts parts_of_any(const sdk::Host& host) {
  const isogate_host& abi = host.abi();
  Parts parts;
  parts.owner = {std::string(sdk::view(abi.instance)), std::string(sdk::view(abi.backend_name)), {}};
  parts.shell = sdk::view(abi.shell);
  parts.toolchain = sdk::view(abi.toolchain_path);
  for (uint64_t i = 0; i < abi.shared_dir_count; ++i)
    parts.shared.emplace_back(sdk::view(abi.shared_dirs[i].prefix));
  return parts;
}

Services::Services(sdk::Host host_, const Config& config_, ClusterAccess access)
    : host(host_),
      config(config_),
      any(parts_of_any(host_)),
      api(std::move(access)),
      name_space(api.access().name_space),
      holder(name_of_holder(host_)),
      pods(api, name_space, pod_selector_of(config_.provision, any.owner),
           [this](const std::string& line) { warn(line); }),
      liveness(std::chrono::seconds(config.liveness_interval_sec),
               std::chrono::seconds(config.liveness_patience_sec),
               [this](const std::string& line) { warn(line); }) {}

std::optional<GatewayAddresses> Services::gateway() const {
  const std::lock_guard lock(mutex_);
  return gateway_;
}

void Services::learn_gateway(const isogate_evidence_request& request) {
  const std::lock_guard lock(mutex_);
  gateway_ = GatewayAddresses::of(request);
}

void Services::warn_once(const std::string& line) {
  {
    const std::lock_guard lock(mutex_);
    if (warned_.find(line) != std::string::npos || warned_.size() > 8192) return;
    warned_ += line + "\n";
  }
  warn(line);
}

ExecRequest exec_request(const Services& services, const std::string& pod, std::vector<std::string> command) {
  ExecRequest request;
  request.name_space = services.name_space;
  request.pod = pod;
  request.container = kContainer;
  request.command = std::move(command);
  return request;
}

Resource Services::leases(const std::string& name) const {
  return {kCoordination, name_space, "leases", name};
}
Resource Services::pod(const std::string& name) const { return {"v1", name_space, "pods", name}; }
Resource Services::claims(const std::string& name) const {
  return {"v1", name_space, "persistentvolumeclaims", name};
}
Resource Services::policies(const std::string& name) const {
  return {kNetworking, name_space, "networkpolicies", name};
}
namespace {

// The newest that the cluster serves and this backend knows; empty: none.
std::string agents_version(Api& api, const Budget& budget) {
  ApiRequest request{"GET", "/apis/agents.x-k8s.io"};
  request.attempt = "ask for the versions of agents.x-k8s.io";
  try {
    const Json group = api.call(request, budget);
    for (const char* each : {"agents.x-k8s.io/v1beta1", "agents.x-k8s.io/v1alpha1"})
      for (const Json& served : group.at("versions"))
        if (served.at("groupVersion") == each) return each;
  } catch (const NetError& error) {
    if (error.http_status() != 404) throw;
  } catch (const Json::exception& error) {
    throw NetError(ISOGATE_UNAVAILABLE,
                   "cannot " + request.attempt + ": the answer is not understood: " + error.what(), 200);
  }
  return "";
}

}  // namespace

Resource Services::sandbox_object(const std::string& name, const Budget& budget) {
  const std::string version = agents_version(api, budget);
  return {version.empty() ? "agents.x-k8s.io/v1beta1" : version, name_space, "sandboxes", name};
}

namespace {

// Whether there no longer is what a condition refers to: a conflict may have other reasons.
bool is_another(Services& services, const Resource& what, const Json& conditions, const Budget& budget) {
  const auto there = services.api.find(what, budget);
  if (!there) return true;
  (void)uid_of(*there);
  for (const auto& [field, value] : conditions.items())
    if (member(member(*there, "metadata"), field.c_str()) != value) return true;
  return false;
}

bool remove_where(Services& services, const Resource& what, const Json& preconditions, const Budget& budget) {
  const Json options = {{"propagationPolicy", "Background"}, {"preconditions", preconditions}};
  try {
    services.api.remove(what, options, budget);
    return true;
  } catch (const NetError& error) {
    if (error.status() == ISOGATE_NOT_FOUND) return false;
    if (error.reason() != "Conflict" || !is_another(services, what, preconditions, budget)) throw;
    return false;
  }
}

}  // namespace

bool remove_object(Services& services, const Resource& what, const std::string& uid, const Budget& budget) {
  return remove_where(services, what, {{"uid", uid}}, budget);
}

bool remove_version(Services& services, const Resource& what, const Json& known, const Budget& budget) {
  const Json now = {{"uid", uid_of(known)}, {"resourceVersion", metadata_text(known, "resourceVersion")}};
  return remove_where(services, what, now, budget);
}

void rethrow_as_ours(Services& services, const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const NetError& error) {
    if (error.status() == ISOGATE_CANCELLED) throw;
    services.warn(error.what());
    const std::string answer =
        error.http_status() == 0
            ? "it gave no answer"
            : "it answered " + std::to_string(error.http_status()) + " " + error.reason();
    unavailable("the API server does not let this sandbox be served now: " + answer +
                "; the gateway's log has the reason");
  }
}

}  // namespace isogate::k8s
