#include "plugins/namespace/profile.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>

#include "runner/enclosure/masked_paths.h"
#include "runner/enclosure/syscall_filter.h"
#include "runner/exec/spawn/spawn.h"

namespace isogate::ns {
namespace {

constexpr uint64_t kLocked = 8u << 20, kSignals = 8192;

uint64_t at_most_ours(int resource, uint64_t wanted) {
  rlimit64 own{};
  if (::getrlimit64(static_cast<__rlimit_resource>(resource), &own) != 0) return wanted;
  return std::min<uint64_t>(wanted, own.rlim_max);
}

std::vector<EnclosureLimit> limits_of(const Config& config) {
  const uint64_t files = at_most_ours(RLIMIT_NOFILE, kProgramFiles);
  const uint64_t processes = at_most_ours(RLIMIT_NPROC, config.max_processes);
  const uint64_t locked = at_most_ours(RLIMIT_MEMLOCK, kLocked);
  const uint64_t signals = at_most_ours(RLIMIT_SIGPENDING, kSignals);
  return {
      {RLIMIT_CORE, 0, 0},
      {RLIMIT_NOFILE, std::min(files, kProgramSoftFiles), files},
      {RLIMIT_NPROC, processes, processes},
      {RLIMIT_MEMLOCK, locked, locked},
      {RLIMIT_SIGPENDING, signals, signals},
      {RLIMIT_MSGQUEUE, 0, 0},
      {RLIMIT_NICE, 0, 0},
      {RLIMIT_RTPRIO, 0, 0},
  };
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
    const std::string path = std::string("/proc/") + each.name;
    struct stat info {};
    if (::lstat(path.c_str(), &info) != 0 || (info.st_mode & S_IROTH) == 0) continue;
    (S_ISDIR(info.st_mode) ? profile->masked_directories : profile->masked_files).push_back(path);
  }
  return std::shared_ptr<const EnclosureProfile>(std::move(profile));
}

}  // namespace isogate::ns
