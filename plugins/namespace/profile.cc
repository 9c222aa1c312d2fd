#include "plugins/namespace/profile.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include "runner/enclosure/masked_paths.h"
#include "runner/enclosure/syscall_filter.h"
#include "runner/exec/spawn/process_limits.h"

namespace isogate::ns {
namespace {

constexpr uint64_t kLocked = 8u << 20, kSignals = 8192;

std::vector<ProcessLimit> limits_of(const Config& config) {
  std::vector<ProcessLimit> limits = program_limits();
  const auto add = [&limits](int resource, uint64_t most) {
    limits.push_back(process_limit(resource, most, most));
  };
  add(RLIMIT_NPROC, config.max_processes);
  add(RLIMIT_MEMLOCK, kLocked);
  add(RLIMIT_SIGPENDING, kSignals);
  add(RLIMIT_MSGQUEUE, 0);
  add(RLIMIT_NICE, 0);
  add(RLIMIT_RTPRIO, 0);
  return limits;
}

}  // namespace

std::string in_memory(uint64_t mib) {
  return "mode=1777,size=" + std::to_string(mib) + "m,nr_inodes=" + std::to_string(kInodesInMemory);
}

Result<std::shared_ptr<const EnclosureProfile>> make_profile(const Config& config) {
  auto filter = make_sandbox_filter(config.debug);
  if (!filter) return filter.error();
  auto profile = std::make_shared<EnclosureProfile>();
  profile->shm_options = in_memory(config.shm_mb);
  profile->limits = limits_of(config);
  profile->filter = std::move(*filter);
  profile->inits_ahead = config.inits_ahead;
  for (const MaskedPath& each : kMaskedInProc) {
    struct stat info {};
    if (::lstat(each.path, &info) != 0 || (info.st_mode & S_IROTH) == 0) continue;
    profile->covers.push_back({each.path, S_ISDIR(info.st_mode) ? "/run" : "/dev/null"});
  }
  return std::shared_ptr<const EnclosureProfile>(std::move(profile));
}

}  // namespace isogate::ns
