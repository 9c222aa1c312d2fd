#include "runner/agent/evidence.h"

#include <fcntl.h>

#include <sstream>

#include "lib/fd.h"
#include "runner/agent/reach.h"
#include "runner/cgroup/cgroup_detect.h"
#include "runner/cgroup/cgroup_limits.h"

namespace isogate::agent {
namespace {

constexpr uint32_t kMetadataPort = 80;
constexpr uint64_t kNoLimit = uint64_t{1} << 62;  // v1 has a number for no limit

bool is_wildcard(const std::string& address) {
  return address.empty() || address == "0.0.0.0" || address == "::";
}

}  // namespace

uint32_t try_network(const Listeners& gateway) {
  std::vector<Target> targets = {{"169.254.169.254", kMetadataPort}, {"fd00:ec2::254", kMetadataPort}};
  const size_t of_metadata = targets.size();
  const auto hops = first_hops();
  bool known = hops.ok();
  const auto add = [&](const Target& listener) {
    for (const std::string& hop : hops ? *hops : std::vector<std::string>())
      targets.push_back({hop, listener.port});
    for (const char* loopback : {"127.0.0.1", "::1"}) targets.push_back({loopback, listener.port});
    if (!is_wildcard(listener.address)) targets.push_back(listener);
  };
  if (gateway.port != 0) add({gateway.address, gateway.port});
  std::istringstream texts(gateway.all);
  for (std::string text; texts >> text;) {
    const auto listener = parse_targets({text}, {});
    known = known && listener && listener->size() == 1;
    if (known) add(listener->front());
  }
  const std::vector<Reached> found = reach(targets);
  uint32_t flags = known ? ISOGATE_EVIDENCE_NETWORK : 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const uint32_t flag =
        i < of_metadata ? ISOGATE_EVIDENCE_REACHED_METADATA : ISOGATE_EVIDENCE_REACHED_GATEWAY;
    if (found[i] == Reached::untried) flags &= ~uint32_t{ISOGATE_EVIDENCE_NETWORK};
    if (found[i] == Reached::connected) flags |= flag;
  }
  return flags;
}

Limits limits_in_force() {
  Limits limits;
  for (const CgroupHierarchy& hierarchy : detect_cgroups()) {
    const Fd group(::openat(AT_FDCWD, hierarchy.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!group) continue;
    const int version = hierarchy.version;
    if (hierarchy.has("memory")) {
      const uint64_t bytes = read_memory_limit(group.get(), version);
      limits.set(ISOGATE_LIMIT_MEMORY_BYTES, bytes < kNoLimit ? bytes : 0);
    }
    if (hierarchy.has("cpu")) limits.set(ISOGATE_LIMIT_CPU_MILLIS, read_cpu_limit(group.get(), version));
    if (hierarchy.has("pids")) limits.set(ISOGATE_LIMIT_PIDS, read_pids_limit(group.get()));
  }
  return limits;
}

}  // namespace isogate::agent
