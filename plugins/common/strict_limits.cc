#include "plugins/common/strict_limits.h"

#include <algorithm>

#include "plugins/common/config_checks.h"

namespace isogate {
namespace {

constexpr uint64_t kMib = 1u << 20;

std::string number(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

Limits limits_from(const CommonLimits& limits) {
  return {{ISOGATE_LIMIT_MEMORY_BYTES, limits.memory_mb * kMib},
          {ISOGATE_LIMIT_CPU_MILLIS, static_cast<uint64_t>(limits.cpus * 1000 + 0.5)},
          {ISOGATE_LIMIT_PIDS, limits.pids}};
}

void check_limits(const std::string& whose, const CommonLimits& limits) {
  const auto too_low = [&whose](const char* name, const std::string& least) {
    refuse(name + (" of " + whose) + " must be 0 or at least " + least + ": nothing runs in less");
  };
  const auto check = [&](const char* name, uint64_t value, uint32_t id) {
    const uint64_t least = least_of_sandbox(id);
    if (value != 0 && value < least) too_low(name, std::to_string(least));
  };
  check("memory_mb", limits.memory_mb, ISOGATE_LIMIT_MEMORY_BYTES);
  check("pids", limits.pids, ISOGATE_LIMIT_PIDS);
  if (!(limits.cpus == 0 || limits.cpus * 100 >= least_of_sandbox(ISOGATE_LIMIT_CPU_MILLIS)))
    too_low("cpus", "0.01");
}

std::string limits_missing(const CommonLimits& limits, uint64_t capabilities) {
  std::string missing;
  const auto check = [&](const char* name, bool wanted, uint64_t limit) {
    if (wanted && (capabilities & limit) == 0) missing += (missing.empty() ? "" : ", ") + std::string(name);
  };
  check("memory_mb", limits.memory_mb != 0, ISOGATE_CAP_SANDBOX_LIMIT_MEMORY);
  check("cpus", limits.cpus != 0, ISOGATE_CAP_SANDBOX_LIMIT_CPU);
  check("pids", limits.pids != 0, ISOGATE_CAP_SANDBOX_LIMIT_PIDS);
  return missing;
}

void add_limits(std::vector<std::string>& found, const std::string& who, const std::string& which,
                const std::string& machine, const CommonLimits& limits) {
  const auto& [memory_mb, cpus, pids] = limits;
  if (memory_mb == 0) found.push_back(who + " may take all memory of " + machine);
  if (cpus == 0) found.push_back(who + " may take all processors of " + machine);
  if (pids == 0) found.push_back(who + " may start any number of processes");
  const auto raised = [&](const std::string& name, const std::string& value, const std::string& strict) {
    found.push_back(name + which + " is " + value + ", not " + strict);
  };
  if (memory_mb > kStrictLimits.memory_mb)
    raised("memory_mb", std::to_string(memory_mb), std::to_string(kStrictLimits.memory_mb));
  if (cpus > kStrictLimits.cpus) raised("cpus", number(cpus), number(kStrictLimits.cpus));
  if (pids > kStrictLimits.pids) raised("pids", std::to_string(pids), std::to_string(kStrictLimits.pids));
}

uint64_t tmp_mb_beside(uint64_t tmp_mb, const Limits& limits) {
  const uint64_t memory = limits.get(ISOGATE_LIMIT_MEMORY_BYTES);
  if (memory == 0) return tmp_mb;
  return std::min(tmp_mb, std::max<uint64_t>(1, memory / kMib / 2));
}

}  // namespace isogate
