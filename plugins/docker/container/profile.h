// The one source of the settings of this backend's containers. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "isogate/backend.h"
#include "lib/limits.h"
#include "plugins/docker/config.h"

namespace isogate::docker {

// Where things are inside.
inline constexpr const char* kWorkspace = "/workspace";
inline constexpr const char* kRunnerDirectory = "/run/isogate/bin";  // a volume with the runner in it, or
inline constexpr const char* kRunner = "/run/isogate/bin/isogate-runner";  // the program itself
inline constexpr const char* kGate = "/run/isogate/gate";
inline constexpr const char* kSocketName = "runner.sock";

// Labels of everything that this backend creates; it never touches an object without them.
inline constexpr const char* kLabelInstance = "io.isogate.instance";
inline constexpr const char* kLabelBackend = "io.isogate.backend";
inline constexpr const char* kLabelSandbox = "io.isogate.sandbox";
inline constexpr const char* kLabelRole = "io.isogate.role";  // sandbox, companion, runner, …

struct Owner {
  std::string instance, backend, sandbox_id;
  bool operator==(const Owner&) const = default;
};
nlohmann::json labels_of(const Owner& owner, const std::string& role);
// Whether these labels are exactly this owner's.
bool carries(const nlohmann::json& labels, const Owner& owner);

// An unnamed volume, created and removed with its container, for a copy (copies.h).
struct CopyPlace {
  std::string target;
  bool on_top = false;  // of the image's content there; else that is hidden
  bool operator==(const CopyPlace&) const = default;
};

struct Parts {
  Owner owner;                   // as all that belongs to it is labelled
  std::string sandbox_id;        // the same, except for a sandbox that was created in advance
  std::string tenant, agent_id;  // for labels alone
  std::string image;             // its own; empty: the configuration's
  uint32_t uid = 0, gid = 0;
  bool known = false;  // it had a workspace: that is never created again
  bool bind = true;    // the two below are paths of this host; false: names of volumes
  std::string workspace, runner;
  std::string gate;     // a directory of this host with the runner's socket; empty: none, the runner waits
  std::string network;  // of the sandbox's own; empty: none
  std::vector<std::pair<std::string, std::string>> shared;  // prefix, path: read-only at /mnt/<prefix>
  std::string shell, toolchain;
  std::string passwd, group;  // in place of the image's (user_names.h): with `bind` paths of this host, else
                              // the content; empty: the image's own
  bool disk_bound = false;    // the kernel bounds the workspace
  std::vector<CopyPlace> copies;
  bool podman = false;         // which takes "no health check" for one
  std::string user_namespace;  // as the Engine names it; empty: its own
  std::string seccomp;         // as SecurityOpt has it; empty: the Engine's own profile
  uint64_t processes = 0;      // RLIMIT_NPROC of its programs; 0: as the Engine has it
};

// The limits in force in a container: those requested for the sandbox, else the configuration's.
Limits limits_of(const Config& config, const Limits& asked);

// The limits that an Engine can enforce on a container.
inline constexpr uint32_t kLimited[] = {ISOGATE_LIMIT_MEMORY_BYTES, ISOGATE_LIMIT_CPU_MILLIS,
                                        ISOGATE_LIMIT_PIDS, ISOGATE_LIMIT_DISK_BYTES};

// RLIMIT_NPROC for podman, whose own default only a privileged podman may set: above the cgroup's limit, and
// no more than this process may have.
uint64_t processes_for(const Limits& limits);

// The limits of a container by their names in HostConfig: those to ask for, and those that an Engine's
// `inspect` response has.
std::map<std::string, uint64_t> engine_limits(const Limits& limits);
std::map<std::string, int64_t> engine_limits(const nlohmann::json& inspected);
// How the second differ from what was asked for; empty: they do not. `no_swap`: the Engine's machine has
// none, so that MemorySwap may be unbounded.
std::string difference_of(const Limits& asked, const std::map<std::string, int64_t>& found, bool no_swap);

// For a rootless Engine of the gateway's own user: the uid of that user inside. podman keeps the number;
// with Docker it is 0, without any capability.
void fit_rootless(Parts& parts, bool podman);

// The body of POST /containers/create.
nlohmann::json container_of(const Config& config, const Parts& parts, const Limits& limits);
const std::string& image_of(const Config& config, const Parts& parts);

// The same for a companion on the network of `parts`.
nlohmann::json container_of(const Config& config, const Parts& parts, const Companion& companion);

// Identifies what a container was made of: differs when the configuration or the limits do.
std::string profile_digest(const Config& config, Parts parts, const Limits& limits);

// A digest of the parts of an Engine's `inspect` response that must stay the same while a container
// runs: limits, capabilities, mounts, networks, and everything else that isolates.
std::string shape_of(const nlohmann::json& inspected);

// argv of a runner over its own byte stream. `alone`: no other one runs programs in that container.
nlohmann::json stdio_command(const Parts& parts, const Limits& limits, bool alone);

}  // namespace isogate::docker
