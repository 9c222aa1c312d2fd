// The one source of what a sandbox is made of in the cluster. Pure functions; the answers are bodies for the
// API. Everything belongs to one Lease, the sandbox's claim, and goes with it.
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
// A file of the node that the kubelet mounts, writable by anybody who gets there and counted by nobody. The
// directory is the installer's (runner/agent/main.cc): no process of the container may search it, and it
// is on a read-only mount, where its owner cannot change that.
inline constexpr const char* kTerminationLog = "/run/isogate/bin/closed/termination-log";
inline constexpr const char* kContainer = "sandbox";
// Where the init container for names writes: a volume for each of the two files, so that each mount has a
// name.
inline constexpr const char* kNamesDirectory = "/run/isogate/names";

// `text` where it is a label's value unchanged, else a name made of its digest.
std::string label_value(const std::string& text);

// Labels of all that this backend makes; nothing without them is ever touched.
inline constexpr const char* kLabelInstance = "isogate.io/instance";
inline constexpr const char* kLabelBackend = "isogate.io/backend";
inline constexpr const char* kLabelSandbox = "isogate.io/sandbox";
inline constexpr const char* kLabelAhead = "isogate.io/ahead";  // of Leases made ahead: ready or taken
inline constexpr const char* kRecord = "isogate.io/record";     // an annotation of the Lease (record.h)

struct Owner {
  std::string instance, backend, sandbox_id;
};
nlohmann::json labels_of(const Owner& owner);
// Of what is a gateway's and no sandbox's.
inline constexpr const char* kLabelGateway = "isogate.io/gateway";
nlohmann::json gateway_labels_of(const Owner& owner);
// Whether this object has exactly this owner's labels. Of no sandbox none does.
bool carries(const nlohmann::json& object, const Owner& owner);
// Whether an ownerReference of this object is of `uid`; empty: none is.
bool belongs_to(const nlohmann::json& object, const std::string& uid);
std::string selector_of(const std::string& instance, const std::string& backend);
// The same of the pods that `kind` makes: a SandboxClaim may label pods in one domain alone.
nlohmann::json pod_labels_of(Provision kind, const Owner& owner);
// And back: those of anything else of the same owner.
nlohmann::json own_labels_of(const nlohmann::json& pod_labels);
std::string pod_selector_of(Provision kind, const std::string& instance, const std::string& backend);

struct Parts {
  Owner owner;
  std::string tenant, agent_id;  // for annotations alone
  std::string lease_uid;
  std::string pod, claim;  // their names
  std::string image;       // its own; empty: the configuration's
  std::string shell, toolchain;
  std::vector<std::string> shared;  // prefixes
  bool ahead = false;               // nobody's yet
};

// What is in force in a pod: what was asked for the sandbox, else the configuration's.
Limits limits_of(const Config& config, const Limits& asked);

// What a cluster can limit of a pod.
inline constexpr uint32_t kLimited[] = {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS,
                                        ISOGATE_LIMIT_DISK_BYTES};

nlohmann::json lease_of(const Parts& parts);
// A Lease made ahead becomes the property of `taker`'s, and goes with it.
void give_lease(nlohmann::json& lease, const Parts& taker);
// A PersistentVolumeClaim
nlohmann::json claim_of(const Config& config, const Parts& parts, const Limits& limits);
nlohmann::json policy_of(const Config& config, const Parts& parts);  // NetworkPolicy
nlohmann::json pod_of(const Config& config, const Parts& parts, const Limits& limits);

// `own` with one thing more, each of which makes its creator the node's root, or nearly: to see whether the
// cluster would have it.
struct Escape {
  std::string what;
  nlohmann::json pod;
};
std::vector<Escape> escapes_of(const nlohmann::json& own);

// Identifies what a pod was made of: differs when the configuration or the limits do, not with whose
// it is.
std::string profile_digest(const Config& config, const Parts& parts, const Limits& limits);

// argv of what brings a stream to the runner, and of one for a single connection.
std::vector<std::string> attach_command();
std::vector<std::string> stdio_command(const Parts& parts);
// What tells a runner how large the workspace is; nothing where a pool's template is what pods are made of.
std::vector<std::string> disk_options(const Config& config, const Limits& limits);

}  // namespace isogate::k8s
