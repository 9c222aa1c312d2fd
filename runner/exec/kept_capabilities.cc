#include "runner/exec/kept_capabilities.h"

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace isogate {

std::string missing_capabilities(std::span<const Kept> table) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (::syscall(SYS_capget, &header, data) != 0) return "all (they cannot be read)";
  const uint64_t effective = data[0].effective | uint64_t{data[1].effective} << 32;
  std::string missing;
  for (const Kept& kept : table) {
    if ((effective >> kept.number & 1) != 0) continue;
    missing += missing.empty() ? "CAP_" : ", CAP_";
    missing += kept.name;
  }
  return missing;
}

}  // namespace isogate
