#include "lib/capabilities.h"

#include <algorithm>
#include <span>

#include "lib/limits.h"

namespace isogate {
namespace {

struct Name {
  uint32_t value;
  std::string_view name;
};
constexpr std::string_view kUnknown = "unknown";
constexpr Name kIsolations[] = {{ISOGATE_ISOLATION_NONE, "none"},
                                {ISOGATE_ISOLATION_NAMESPACE, "namespace"},
                                {ISOGATE_ISOLATION_CONTAINER, "container"},
                                {ISOGATE_ISOLATION_VM, "vm"}};
constexpr Name kLocalities[] = {{ISOGATE_LOCALITY_PROCESS, "process"},
                                {ISOGATE_LOCALITY_HOST, "host"},
                                {ISOGATE_LOCALITY_DAEMON, "daemon"},
                                {ISOGATE_LOCALITY_CLUSTER, "cluster"},
                                {ISOGATE_LOCALITY_GATEWAY, "gateway"}};
constexpr Name kVerdicts[] = {{ISOGATE_PROBE_AVAILABLE, "available"},
                              {ISOGATE_PROBE_DEGRADED, "degraded"},
                              {ISOGATE_PROBE_UNAVAILABLE, "unavailable"}};

std::string_view name_of(std::span<const Name> table, uint32_t value) {
  const auto row = std::ranges::find(table, value, &Name::value);
  return row == table.end() ? kUnknown : row->name;
}

}  // namespace

const std::vector<std::pair<uint64_t, std::string>>& capability_table() {
  static const std::vector<std::pair<uint64_t, std::string>> table = [] {
    std::vector<std::pair<uint64_t, std::string>> rows = {
        {ISOGATE_CAP_PTY, "pty"},
        {ISOGATE_CAP_USER, "user"},
        {ISOGATE_CAP_SCOPE_SANDBOX, "scope_sandbox"},
        {ISOGATE_CAP_EGRESS_DENY, "egress_deny"},
        {ISOGATE_CAP_UID_PER_SANDBOX, "uid_per_sandbox"},
        {ISOGATE_CAP_PERSISTENT, "persistent"},
        {ISOGATE_CAP_EVIDENCE, "evidence"},
        {ISOGATE_CAP_PROVEN_EXECS, "proven_execs"},
        {ISOGATE_CAP_SANDBOX_DISK_ADVISORY, "sandbox_disk_advisory"},
        {ISOGATE_CAP_MERGE_STDERR, "merge_stderr"},
        {ISOGATE_CAP_IMAGE, "image"},
        {ISOGATE_CAP_WATCH, "watch"},
        {ISOGATE_CAP_PORTS, "ports"},
        {ISOGATE_CAP_KEPT_EXECS, "kept_execs"},
    };
    for (const LimitKind& kind : kLimitKinds) {
      const std::string name = std::string("limit_") + kind.word;
      rows.emplace_back(kind.exec, name);
      rows.emplace_back(kind.sampled, name + "_sampled");
      rows.emplace_back(kind.sandbox, "sandbox_" + name);
    }
    std::erase_if(rows, [](const auto& row) { return row.first == 0; });
    std::sort(rows.begin(), rows.end());
    return rows;
  }();
  return table;
}

uint64_t known_capabilities(uint64_t capabilities) {
  uint64_t known = 0;
  for (const auto& [bit, name] : capability_table()) known |= bit;
  return capabilities & known;
}

std::vector<std::string_view> capability_names(uint64_t capabilities) {
  std::vector<std::string_view> names;
  for (const auto& [bit, name] : capability_table())
    if (capabilities & bit) names.push_back(name);
  return names;
}

std::string_view isolation_name(uint32_t isolation) { return name_of(kIsolations, isolation); }
bool known_isolation(uint32_t isolation) { return isolation_name(isolation) != kUnknown; }

std::optional<uint32_t> parse_isolation(std::string_view name) {
  for (const Name& row : kIsolations)
    if (row.name == name) return row.value;
  return std::nullopt;
}

std::string_view locality_name(uint32_t locality) { return name_of(kLocalities, locality); }
bool known_locality(uint32_t locality) { return locality_name(locality) != kUnknown; }

std::string_view verdict_name(uint32_t verdict) { return name_of(kVerdicts, verdict); }

}  // namespace isogate
