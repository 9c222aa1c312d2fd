// The operator's configuration of this backend, with strict defaults.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plugins/k8s/client/access.h"

namespace isogate::k8s {

// How the runner in a pod is reached: by one exec that stays, or one for each call.
enum class RunnerTransport { kStream, kExec };
enum class Place { kClaim, kEmptyDir };

// What creates the pods (provision.h). By name, as in the configuration; from_json() throws for an unknown
// one.
enum class Provision { kPod, kJob, kSandbox, kSandboxClaim };
const char* name_of(Provision provision);
void to_json(nlohmann::json& json, Provision provision);
void from_json(const nlohmann::json& json, Provision& provision);

// The keys of a Secret of the namespace, as read-only files.
struct SecretFiles {
  std::string secret;
  std::string target;  // absolute directory in the sandbox
};

// A claim of the namespace as the shared directory `prefix`: a pod sees none of this host's.
struct SharedClaim {
  std::string prefix, claim;
};

// Addresses that a sandbox may reach although its network denies everything.
struct Destination {
  std::string cidr;
  std::vector<uint16_t> ports;  // TCP; empty: all of every protocol
};

struct Config {
  AccessConfig access;
  std::string image = "isogate-sandbox:latest";
  std::string runner_image = "isogate-runner:latest";
  std::string runner_program = "/isogate-runner";  // in it
  std::string pull_policy = "IfNotPresent";
  std::vector<std::string> pull_secrets;
  uint64_t memory_mb = 512;        // 0: no cap; the same below
  uint64_t memory_request_mb = 0;  // 0: as much as the limit
  double cpus = 1.0;
  double cpu_request = 0;  // 0: a tenth of the limit
  uint64_t ephemeral_mb = 1024;
  uint64_t tmp_mb = 64, shm_mb = 64;
  uint64_t uid = 10000;     // and gid, and of the files of volumes
  bool adds_names = false;  // for them, in the pod
  Place workspace = Place::kClaim;
  uint64_t workspace_mb = 1024;
  std::string storage_class;  // empty: the cluster's own default
  std::string access_mode = "ReadWriteOnce";
  std::string runtime_class;  // empty: the node's own
  bool vm = false;            // that class is a virtual machine
  bool open_network = false;
  std::vector<Destination> egress_to;
  std::vector<std::string>
      must_not_reach;  // ADDRESS:PORT, tried in addition to what the backend knows itself
  std::vector<uint16_t> kubelet_ports = {10250,
                                         10255};  // in addition to the port that the node's own object names
  std::vector<SecretFiles> secrets;
  std::vector<SharedClaim> shared;
  std::vector<std::pair<std::string, std::string>> env;
  RunnerTransport transport = RunnerTransport::kStream;
  unsigned warm_pool = 0;           // pods created in advance
  uint64_t open_timeout_sec = 150;  // of a whole opening
  uint64_t busy_timeout_sec = 20;   // of that, waiting for another gateway that works on the same sandbox
  uint64_t ready_timeout_sec = 120;
  uint64_t node_timeout_sec = 10;
  uint64_t orphaned_after_sec = 600;
  uint64_t max_lifetime_sec = 0;        // 0: no limit
  uint64_t liveness_interval_sec = 30;  // 0: runners are not checked
  uint64_t liveness_patience_sec = 20;
  Provision provision = Provision::kPod;
  std::string sandbox_pool;  // the SandboxWarmPool, of kSandboxClaim
  uint64_t job_backoff_limit = 0;
  uint64_t job_ttl_sec = 300;
  nlohmann::json pod_template = nlohmann::json::object();
  bool allow_unenforced_admission = false;
  bool allow_unenforced_network = false;
  bool allow_weaker_template = false;
};

// Of a document that fits the schema (config_schema.h); checks what that cannot express. Throws sdk::Error.
// Empty text is an empty object.
Config parse_config(std::string_view json);

// Throws sdk::Error unless each shared directory of the gateway has a claim in `config.shared`.
void check_shared(const Config& config, const std::vector<std::string>& prefixes);

// Each relaxation of the defaults, in words.
std::vector<std::string> relaxations_of(const Config& config);

}  // namespace isogate::k8s
