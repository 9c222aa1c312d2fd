#include "runner/exec/spawn/process_limits.h"

#include <sys/resource.h>

#include <algorithm>

namespace isogate {

ProcessLimit process_limit(int resource, uint64_t soft, uint64_t hard) {
  rlimit64 own{};
  if (::getrlimit64(static_cast<__rlimit_resource>(resource), &own) == 0)
    hard = std::min<uint64_t>(hard, own.rlim_max);
  return {resource, std::min(soft, hard), hard};
}

std::vector<ProcessLimit> program_limits() {
  return {{RLIMIT_CORE, 0, 0}, process_limit(RLIMIT_NOFILE, kProgramSoftFiles, kProgramFiles)};
}

}  // namespace isogate
