#include "runner/cgroup/cgroup_limits.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <string>

#include "lib/text.h"
#include "runner/cgroup/cgroup_base.h"

namespace isogate {
namespace {

constexpr size_t kMostGroupsAbove = 32;

std::string first_line(int group_fd, const std::string& name) {
  const std::string text = read_small_file(group_fd, name);
  return text.substr(0, text.find('\n'));
}

Error not_in_force(const std::string& name, const std::string& asked, const std::string& found) {
  return unsupported("`" + name + "` was set to " + asked + " and reads " +
                     (found.empty() ? "nothing" : found));
}

Result<void> set_exactly(int group_fd, const std::string& name, const std::string& value) {
  if (auto written = write_small_file(group_fd, name, value); !written.ok()) return written.error();
  const std::string found = first_line(group_fd, name);
  if (found != value) return not_in_force(name, value, found);
  return {};
}

Result<void> set_bytes(int group_fd, const std::string& name, uint64_t bytes) {
  const std::string asked = std::to_string(bytes);
  if (auto written = write_small_file(group_fd, name, asked); !written.ok()) return written.error();
  const std::string text = first_line(group_fd, name);
  const auto found = number_in<uint64_t>(text);
  if (!found || *found > bytes) return not_in_force(name, asked, text);
  return {};
}

bool exists(int group_fd, const char* name) {
  struct stat status {};
  return ::fstatat(group_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
}

// The kernel takes periods up to 1 s and quotas from 1 ms.
uint64_t period_of(uint64_t millis) { return millis < 10 ? 1'000'000 : 100'000; }

std::string cpu_quota(int version, uint64_t millis, uint64_t period) {
  const std::string quota = std::to_string(millis * (period / 1000));
  return version == 2 ? quota + " " + std::to_string(period) : quota;
}

// Swap that no group counts would let a program exceed its limit.
Result<void> check_no_swap() {
  if (swap_is_off()) return {};
  return unsupported("swap is on and its use cannot be limited (boot with swapaccount=1, or turn swap off)");
}

}  // namespace

bool swap_is_off() {
  const std::string swaps = read_small_file(AT_FDCWD, "/proc/swaps");
  return std::count(swaps.begin(), swaps.end(), '\n') == 1;  // the heading
}

Result<void> set_socket_memory_limit(int group_fd, int version, uint64_t bytes) {
  if (version == 2) return {};
  return set_bytes(group_fd, "memory.kmem.tcp.limit_in_bytes", bytes);
}

Result<void> set_memory_limit(int group_fd, int version, uint64_t bytes) {
  if (version == 1) {
    if (auto set = set_bytes(group_fd, "memory.limit_in_bytes", bytes); !set.ok()) return set;
    if (auto set = set_socket_memory_limit(group_fd, version, bytes); !set.ok()) return set;
    if (!exists(group_fd, "memory.memsw.limit_in_bytes")) return check_no_swap();
    return set_bytes(group_fd, "memory.memsw.limit_in_bytes", bytes);
  }
  if (auto set = set_bytes(group_fd, "memory.max", bytes); !set.ok()) return set;
  if (auto set = set_exactly(group_fd, "memory.oom.group", "1"); !set.ok()) return set;
  if (!exists(group_fd, "memory.swap.max")) return check_no_swap();
  return set_exactly(group_fd, "memory.swap.max", "0");
}

Result<void> set_pids_limit(int group_fd, int, uint64_t pids) {
  return set_exactly(group_fd, "pids.max", std::to_string(pids));
}

uint64_t most_pids_below(int group_fd) {
  uint64_t least = UINT64_MAX;
  for (const char* name : {"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max"})
    least = std::min(least, number_in<uint64_t>(first_line(AT_FDCWD, name)).value_or(0));
  std::string group;  // the root of a hierarchy has no such file, and its mount point's parent neither
  for (bool more = true; more && group.size() < 3 * kMostGroupsAbove; group += "../") {
    const std::string limit = first_line(group_fd, group + "pids.max");
    if (const auto most = number_in<uint64_t>(limit)) least = std::min(least, *most);
    more = !limit.empty();
  }
  return least / 4 * 3;
}

Result<void> set_cpu_limit(int group_fd, int version, uint64_t millis) {
  const uint64_t period = period_of(millis);
  if (millis > 1'000'000) return unsupported("more than 1000 CPUs were asked for");
  const std::string quota = cpu_quota(version, millis, period);
  if (version == 2) return set_exactly(group_fd, "cpu.max", quota);
  if (auto set = set_exactly(group_fd, "cpu.cfs_period_us", std::to_string(period)); !set.ok()) return set;
  return set_exactly(group_fd, "cpu.cfs_quota_us", quota);
}

std::string raised_cpu_limit(int version, uint64_t millis) {
  return cpu_quota(version, millis + 1000, period_of(millis));
}

uint64_t read_memory_limit(int group_fd, int version) {
  return number_in<uint64_t>(first_line(group_fd, version == 1 ? "memory.limit_in_bytes" : "memory.max"))
      .value_or(0);
}

uint64_t read_pids_limit(int group_fd) {
  return number_in<uint64_t>(first_line(group_fd, "pids.max")).value_or(0);
}

uint64_t read_cpu_limit(int group_fd, int version) {
  std::string quota = first_line(group_fd, version == 1 ? "cpu.cfs_quota_us" : "cpu.max"), period;
  if (version == 1) {
    period = first_line(group_fd, "cpu.cfs_period_us");
  } else if (const size_t space = quota.find(' '); space != std::string::npos) {
    period = quota.substr(space + 1);
    quota.resize(space);
  }
  const auto used = number_in<uint64_t>(quota), of = number_in<uint64_t>(period);
  return used && of && *of > 0 ? *used * 1000 / *of : 0;
}

}  // namespace isogate
