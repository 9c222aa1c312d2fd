#include "lib/capabilities.h"

#include <algorithm>
#include <string>

#include "lib/limits.h"

namespace isogate {

const std::vector<std::pair<uint64_t, std::string_view>>& capability_table() {
  static const std::vector<std::string> limits = [] {
    std::vector<std::string> names;
    for (const LimitKind& kind : kLimitKinds) {
      const std::string name = std::string("limit_") + kind.word;
      names.insert(names.end(), {name, name + "_sampled", "sandbox_" + name});
    }
    return names;
  }();
  static const std::vector<std::pair<uint64_t, std::string_view>> table = [] {
    std::vector<std::pair<uint64_t, std::string_view>> rows = {
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
    auto name = limits.begin();
    for (const LimitKind& kind : kLimitKinds)
      for (const uint64_t bit : {kind.exec, kind.sampled, kind.sandbox}) {
        if (bit != 0) rows.emplace_back(bit, *name);
        ++name;
      }
    std::sort(rows.begin(), rows.end());
    return rows;
  }();
  return table;
}

std::vector<std::string_view> capability_names(uint64_t capabilities) {
  std::vector<std::string_view> names;
  for (const auto& [bit, name] : capability_table())
    if (capabilities & bit) names.push_back(name);
  return names;
}

}  // namespace isogate
