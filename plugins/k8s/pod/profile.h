// The one source of a sandbox's objects in the cluster. Pure functions; the results are bodies for the API.
// Everything belongs to one Lease, the sandbox's claim, and is deleted with it.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "isogate/backend.h"
#include "lib/limits.h"
#include "plugins/k8s/config.h"

namespace isogate::k8s {

// Where things are inside.
inline constexpr const char* kWorkspace = "/workspace";
inline constexpr const char* kRunnerDirectory = "/run/isogate/bin";
inline constexpr const char* kRunner = "/run/isogate/bin/isogate-runner";
// A file of the node that the kubelet mounts; any process that reaches it can write it, and its size is not
// counted. The directory belongs to the installer (runner/agent/main.cc): no process of the container may
// search it, and it is on a read-only mount, where its owner cannot change that.
inline constexpr const char* kTerminationLog = "/run/isogate/bin/closed/termination-log";
inline constexpr const char* kContainer = "sandbox";
// Where the init container for names writes: a volume for each of the two files, so that each mount has a
// name.
inline constexpr const char* kNamesDirectory = "/run/isogate/names";

// `text` if it is a valid label value, else a name made of its digest.
std::string label_value(const std::string& text);

// Labels of everything that this backend creates; it never touches an object without them.
inline constexpr const char* kLabelInstance = "isogate.io/instance";
inline constexpr const char* kLabelBackend = "isogate.io/backend";
inline constexpr const char* kLabelSandbox = "isogate.io/sandbox";
inline constexpr const char* kLabelAhead = "isogate.io/ahead";  // of Leases made in advance: ready or taken
inline constexpr const char* kRecord = "isogate.io/record";     // an annotation of the Lease (record.h)

struct Owner {
  std::string instance, backend, sandbox_id;
};
nlohmann::json labels_of(const Owner& owner);
// Of an object of a gateway, not of a sandbox.
inline constexpr const char* kLabelGateway = "isogate.io/gateway";
nlohmann::json gateway_labels_of(const Owner& owner);
// Whether this object has exactly this owner's labels. An owner without a sandbox matches nothing.
bool carries(const nlohmann::json& object, const Owner& owner);
// Whether an ownerReference of this object is of `uid`; empty: none is.
bool belongs_to(const nlohmann::json& object, const std::string& uid);
std::string selector_of(const Owner& owner);  // of all sandboxes, whatever its sandbox_id
// The same of the pods that `kind` makes: a SandboxClaim may label pods in only one domain.
nlohmann::json pod_labels_of(Provision kind, const Owner& owner);
// And back: those of anything else of the same owner.
nlohmann::json own_labels_of(const nlohmann::json& pod_labels);
std::string pod_selector_of(Provision kind, const Owner& owner);

struct Parts {
  Owner owner;
  std::string tenant, agent_id;  // for annotations alone
  std::string lease_uid;
  std::string pod, claim;  // their names
  std::string image;       // its own; empty: the configuration's
  std::string shell, toolchain;
  std::vector<std::string> shared;  // prefixes
  bool ahead = false;               // not assigned to an agent yet
};

// The limits in force in a pod: those requested for the sandbox, else the configuration's.
Limits limits_of(const Config& config, const Limits& asked);

// The limits that a cluster can enforce on a pod.
inline constexpr uint32_t kLimited[] = {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS,
                                        ISOGATE_LIMIT_DISK_BYTES};

nlohmann::json lease_of(const Parts& parts);
// A Lease created in advance becomes owned by `taker`'s, and is deleted with it.
void give_lease(nlohmann::json& lease, const Parts& taker);
// A PersistentVolumeClaim
nlohmann::json claim_of(const Config& config, const Parts& parts, const Limits& limits);
nlohmann::json policy_of(const Config& config, const Parts& parts);  // NetworkPolicy
nlohmann::json pod_of(const Config& config, const Parts& parts, const Limits& limits);

// `own` with one addition, each of which makes its creator root on the node, or nearly: to test whether the
// cluster admits it.
struct Escape {
  std::string what;
  nlohmann::json pod;
};
std::vector<Escape> escapes_of(const nlohmann::json& own);

// Identifies the settings of a pod: differs when the configuration or the limits do, not by its
// agent.
std::string profile_digest(const Config& config, const Parts& parts, const Limits& limits);

// argv of the program that attaches a stream to the runner, and of one for a single connection.
std::vector<std::string> attach_command();
std::vector<std::string> stdio_command(const Parts& parts);
// The options that give a runner the size of the workspace; nothing if a pool's template defines the pods.
std::vector<std::string> disk_options(const Config& config, const Limits& limits);

}  // namespace isogate::k8s
