#include "runner/exec/tree/process_usage.h"

#include <fcntl.h>

#include <array>
#include <string>

#include "lib/text.h"
#include "runner/cgroup/cgroup_detect.h"

namespace isogate {
namespace {

// Fields of /proc/PID/stat from the state on, which is field 3 of proc(5).
constexpr size_t kFirstField = 3, kFields = 22;

std::string_view field(const std::array<std::string_view, kFields>& fields, size_t number) {
  return fields[number - kFirstField];
}

bool take(std::string_view text, uint64_t& value) {
  const auto number = number_in<uint64_t>(text);
  value = number.value_or(0);
  return number.has_value();
}

std::optional<uint64_t> kib_of(std::string_view text, std::string_view name) {
  const std::string_view field = line_field(text, name).value_or("");  // 123 kB
  if (!field.ends_with(" kB")) return std::nullopt;
  const auto value = number_in<uint64_t>(field.substr(0, field.size() - 3));
  return value && *value < (uint64_t{1} << 50) ? value : std::nullopt;
}

std::string text_of(pid_t pid, const char* name) {
  return read_small_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/" + name);
}

}  // namespace

std::optional<ProcessUsage> parse_process_stat(std::string_view text) {
  const size_t name_end = text.rfind(')');  // the name may contain anything, and is the only field that may
  if (name_end == std::string_view::npos) return std::nullopt;
  text.remove_prefix(name_end + 1);
  std::array<std::string_view, kFields> fields;
  for (std::string_view& each : fields) {
    if (text.empty() || text.front() != ' ') return std::nullopt;
    text.remove_prefix(1);
    each = text.substr(0, text.find_first_of(" \n"));
    text.remove_prefix(each.size());
  }
  ProcessUsage usage;
  uint64_t user = 0, system = 0, waited_user = 0, waited_system = 0;
  const bool numbers = take(field(fields, 14), user) && take(field(fields, 15), system) &&
                       take(field(fields, 16), waited_user) && take(field(fields, 17), waited_system) &&
                       take(field(fields, 20), usage.tasks) && take(field(fields, 22), usage.start_ticks) &&
                       take(field(fields, 24), usage.resident_pages);
  if (!numbers) return std::nullopt;
  usage.stopped = field(fields, 3) == "T" || field(fields, 3) == "t";
  usage.cpu_ticks = user + system;
  usage.waited_cpu_ticks = waited_user + waited_system;
  return usage;
}

std::optional<uint64_t> parse_own_memory(std::string_view rollup) {
  const auto anonymous = kib_of(rollup, "Pss_Anon"), shared = kib_of(rollup, "Pss_Shmem");
  const auto all = kib_of(rollup, "Pss"), swapped = kib_of(rollup, "SwapPss");
  if (!all && !anonymous) return std::nullopt;
  const uint64_t resident = anonymous && shared ? *anonymous + *shared : all.value_or(0);
  return (resident + swapped.value_or(0)) * 1024;
}

std::optional<ProcessUsage> process_usage(pid_t pid) { return parse_process_stat(text_of(pid, "stat")); }

std::optional<uint64_t> own_memory(pid_t pid) { return parse_own_memory(text_of(pid, "smaps_rollup")); }

}  // namespace isogate
