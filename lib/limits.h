// The kinds of limits, one row each, and a set of limits. Code that names, parses, sends or compares limits
// uses the rows; records between processes list limits in their order. A new kind needs its id and
// capabilities in backend.h, its row here, and in a backend that enforces it: its entry among the limits
// that it claims and open() takes, and its value in the evidence, without which the gateway refuses the
// sandbox. Plain values. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <utility>

#include "isogate/backend.h"
#include "lib/error.h"

namespace isogate {

struct LimitKind {
  uint32_t id;           // ISOGATE_LIMIT_*
  const char* word;      // "memory": in messages, and in the names of its capabilities
  const char* name;      // "memory_bytes": in records and messages, with the unit of the ABI
  const char* setting;   // "memory_mb": in a backend's `limits`, a request's `cgroup`, and as a flag
  const char* unit;      // of the flag's value: "MIB"
  uint64_t scale;        // ABI units in one unit of the setting
  uint64_t least, most;  // of a sandbox, in units of the setting; 0 beside them: the backend's own
  uint64_t least_of_exec, most_of_exec;  // of one exec, in the same units
  // ISOGATE_CAP_* of a backend that enforces it for one exec, samples it for one exec, enforces it for a
  // sandbox. 0: there is none; without `exec` it is no limit of an exec.
  uint64_t exec, sampled, sandbox;
  const char* brief;          // of the flag
  const char* sandbox_brief;  // of the configuration, and more about it
  const char* sandbox_details;
};

inline constexpr LimitKind kLimitKinds[] = {
    {ISOGATE_LIMIT_MEMORY_BYTES, "memory", "memory_bytes", "memory_mb", "MIB", 1 << 20, 32, 1 << 24, 1,
     1 << 24, ISOGATE_CAP_LIMIT_MEMORY, ISOGATE_CAP_LIMIT_MEMORY_SAMPLED, ISOGATE_CAP_SANDBOX_LIMIT_MEMORY,
     "Limit of RAM and swap together, MiB",
     "Memory of a sandbox in MiB, swap included; 0: as the backend's own settings say.", ""},
    {ISOGATE_LIMIT_CPU_MILLIS, "cpu", "cpu_millis", "cpu_percent", "PERCENT", 10, 1, 1000000, 1, 102400,
     ISOGATE_CAP_LIMIT_CPU, ISOGATE_CAP_LIMIT_CPU_SAMPLED, ISOGATE_CAP_SANDBOX_LIMIT_CPU,
     "Limit of CPU time; 100 is one CPU",
     "CPU of a sandbox, 100 is one processor; 0: as the backend's own settings say.", ""},
    {ISOGATE_LIMIT_PIDS, "pids", "pids", "max_pids", "COUNT", 1, 32, 1 << 22, 2, 1 << 22,
     ISOGATE_CAP_LIMIT_PIDS, ISOGATE_CAP_LIMIT_PIDS_SAMPLED, ISOGATE_CAP_SANDBOX_LIMIT_PIDS,
     "Limit of processes and threads",
     "Processes and threads of a sandbox; 0: as the backend's own settings say.",
     "An init that the backend runs beside each exec counts, and in containers and pods the runner."},
    {ISOGATE_LIMIT_DISK_BYTES, "disk", "disk_bytes", "disk_mb", "MIB", 1 << 20, 8, 1 << 30, 0, 0, 0, 0,
     ISOGATE_CAP_SANDBOX_LIMIT_DISK, "",
     "Workspace of a sandbox in MiB; 0: as the backend's own settings say.",
     "Enforced by project quotas where the file system of the sandboxes has them, or by a file system of "
     "each "
     "sandbox's own (`workspace_fs` in `config`). A backend that could only count is not chosen, or, with "
     "`best_effort`, counts."},
};
inline constexpr size_t kLimitKindCount = std::size(kLimitKinds);
static_assert(kLimitKindCount <= ISOGATE_EVIDENCE_LIMITS_MAX);

// The row of an id; kLimitKindCount: there is none.
constexpr size_t limit_row(uint32_t id) {
  for (size_t row = 0; row < kLimitKindCount; ++row)
    if (kLimitKinds[row].id == id) return row;
  return kLimitKindCount;
}

// The least that a sandbox may be limited to, in units of the setting: nothing runs in less.
constexpr uint64_t least_of_sandbox(uint32_t id) { return kLimitKinds[limit_row(id)].least; }

// The capabilities that a backend claims if it enforces these of a sandbox.
constexpr uint64_t sandbox_limits(std::span<const uint32_t> ids) {
  uint64_t bits = 0;
  for (const uint32_t id : ids) bits |= kLimitKinds[limit_row(id)].sandbox;
  return bits;
}
// The same of one exec.
constexpr uint64_t exec_limits(std::span<const uint32_t> ids) {
  uint64_t bits = 0;
  for (const uint32_t id : ids) bits |= kLimitKinds[limit_row(id)].exec;
  return bits;
}
// The capabilities of the same limits for a whole sandbox.
constexpr uint64_t sandbox_limits_like(uint64_t exec_limits) {
  uint64_t bits = 0;
  for (const LimitKind& kind : kLimitKinds) bits |= (exec_limits & kind.exec) != 0 ? kind.sandbox : 0;
  return bits;
}

inline constexpr uint64_t kSampledLimits = [] {
  uint64_t bits = 0;
  for (const LimitKind& kind : kLimitKinds) bits |= kind.sampled;
  return bits;
}();

// As arrays of the ABI, valid as long as this.
struct LimitList {
  std::array<isogate_limit, kLimitKindCount> items{};
  uint32_t count = 0;
};

enum class UnknownLimit { kRefuse, kSkip };

class Limits {
 public:
  Limits() = default;
  Limits(std::initializer_list<std::pair<uint32_t, uint64_t>> limits);
  // ISOGATE_UNSUPPORTED for an id without a row, unless those are skipped; ISOGATE_INVALID_ARGUMENT for an id
  // twice, a value of 0, or reserved bits.
  static Result<Limits> take(const isogate_limit* limits, uint64_t count,
                             UnknownLimit unknown = UnknownLimit::kRefuse);
  // Those in force; ids without a row are skipped, and more than there may be are not looked at.
  static Limits of(const isogate_evidence& evidence);

  // Precondition: `id` has a row. 0: not limited.
  [[nodiscard]] uint64_t get(uint32_t id) const { return values_.at(limit_row(id)); }
  void set(uint32_t id, uint64_t value) { values_.at(limit_row(id)) = value; }
  [[nodiscard]] uint64_t& at_row(size_t row) { return values_[row]; }

  [[nodiscard]] bool empty() const { return *this == Limits(); }
  [[nodiscard]] LimitList list() const;
  void put(isogate_evidence& evidence) const;
  // "memory_mb, disk_mb": the settings of those that are not among `ids`; empty: none.
  [[nodiscard]] std::string settings_beside(std::span<const uint32_t> ids) const;
  // "max_pids must be 0 or at least 32: nothing runs in less"; empty: none is too low for a sandbox.
  [[nodiscard]] std::string too_low() const;
  // These limits, replaced by those of `others`.
  [[nodiscard]] Limits overridden_by(const Limits& others) const;
  [[nodiscard]] Limits only(std::span<const uint32_t> ids) const;
  // Every limit of `others` is limited here too, to the same value or less.
  [[nodiscard]] bool within(const Limits& others) const;
  // The limits of both, with the lower value if both have one.
  static Limits stricter(const Limits& a, const Limits& b);

  bool operator==(const Limits&) const = default;

 private:
  std::array<uint64_t, kLimitKindCount> values_{};
};

}  // namespace isogate
