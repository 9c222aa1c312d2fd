#include "runner/files/workspace_room.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <sstream>

#include "lib/fd.h"
#include "lib/text.h"
#include "runner/cgroup/cgroup_detect.h"

namespace isogate {
namespace {

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kLowWater = 256 * kMiB, kReserve = 8 * kMiB;
constexpr uint64_t kFull = kMiB;
constexpr std::chrono::milliseconds kLookEvery{100};

struct Disk {
  uint64_t all = 0, free = 0, free_for_root = 0;
  [[nodiscard]] uint64_t low_water() const { return std::min(kLowWater, all / 20); }
  [[nodiscard]] uint64_t reserve() const { return std::min(kReserve, all / 100); }
};

Disk disk_of(const struct statvfs& info) {
  return {info.f_blocks * info.f_frsize, info.f_bavail * info.f_frsize, info.f_bfree * info.f_frsize};
}

Result<void> look(const std::string& sandboxes_dir) {
  struct statvfs info {};
  if (::statvfs(sandboxes_dir.c_str(), &info) != 0) return {};  // the write itself reports it
  const Disk disk = disk_of(info);
  if (disk.free >= disk.low_water()) return {};
  return Error{ISOGATE_RESOURCE_EXHAUSTED, ENOSPC,
               "the gateway's disk has " + std::to_string(disk.free / kMiB) + " MiB left, and the last " +
                   std::to_string(disk.low_water() / kMiB) + " MiB are not for uploads"};
}

Result<void> check(const Memory& memory, const char* whose) {
  const uint64_t low = std::min(kLowWater, memory.all / 20);
  if (memory.free >= low) return {};
  return Error{ISOGATE_RESOURCE_EXHAUSTED, ENOMEM,
               std::string(whose) + " has " + std::to_string(memory.free / kMiB) +
                   " MiB of memory left, and the last " + std::to_string(low / kMiB) +
                   " MiB are not for uploads"};
}

Memory memory_of_machine() {
  const std::string text = read_small_file(AT_FDCWD, "/proc/meminfo");
  const auto bytes_of = [&text](std::string_view name) {
    const std::string_view field = line_field(text, name).value_or("");
    return 1024 * number_in<uint64_t>(field.substr(0, field.find(' '))).value_or(0);
  };
  return {bytes_of("MemTotal") + bytes_of("SwapTotal"), bytes_of("MemAvailable") + bytes_of("SwapFree")};
}

Result<void> look_at_memory() {
  const Memory machine = memory_of_machine();
  if (machine.all == 0) return Error{ISOGATE_IO, 0, "cannot read /proc/meminfo"};
  if (auto checked = check(machine, "this machine"); !checked) return checked;
  for (const CgroupHierarchy& hierarchy : detect_cgroups())
    for (std::string group = hierarchy.directory; !group.empty(); group.erase(group.rfind('/'))) {
      const auto memory = memory_of_group(group, hierarchy.version);
      if (!memory) continue;
      if (auto checked = check(*memory, "the gateway's cgroup"); !checked) return checked;
    }
  return {};
}

// The result is valid for a moment.
class Looked {
 public:
  Result<void> at(const std::string& place, const std::function<Result<void>()>& look) {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (now >= until_ || of_ != place) {
      verdict_ = look();
      of_ = place;
      until_ = now + kLookEvery;
    }
    return verdict_;
  }

 private:
  std::mutex mutex_;
  std::string of_;
  std::chrono::steady_clock::time_point until_;
  Result<void> verdict_;
};

// A file without a name, so that it does not outlive this process.
struct Reserve {
  std::mutex mutex;
  dev_t device = 0;
  Fd file;
};

// It has real blocks: a sparse file would reserve nothing.
Fd reserved_file(int sandboxes, uint64_t bytes) {
  Fd file(::openat(sandboxes, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (file && ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) == 0) return file;
  return Fd();
}

}  // namespace

std::optional<Memory> memory_of_group(const std::string& directory, int version) {
  const auto text_of = [&](const char* file) { return read_small_file(AT_FDCWD, directory + "/" + file); };
  const auto number_of = [&](const char* file) {
    const std::string text = text_of(file);
    return number_in<uint64_t>(trimmed(text, "\n"));
  };
  const bool v2 = version == 2;
  const auto used = number_of(v2 ? "memory.current" : "memory.usage_in_bytes");
  if (!used) return std::nullopt;
  const uint64_t all = number_of(v2 ? "memory.max" : "memory.limit_in_bytes").value_or(UINT64_MAX);
  uint64_t kept = *used;
  std::istringstream lines(text_of("memory.stat"));
  const std::string prefix = v2 ? "" : "total_";
  uint64_t size = 0;
  for (std::string name; lines >> name >> size;)
    if (name == prefix + "inactive_file" || name == prefix + "active_file") kept -= std::min(kept, size);
  return Memory{all, all - std::min(all, kept)};
}

Result<void> room_for_upload(const std::string& sandboxes_dir) {
  static Looked looked;
  return looked.at(sandboxes_dir, [&] { return look(sandboxes_dir); });
}

Result<void> room_in_memory() {
  static Looked looked;
  return looked.at("", look_at_memory);
}

void make_room(int sandboxes) {
  static Reserve reserve;
  struct statvfs info {};
  struct stat place {};
  if (::fstatvfs(sandboxes, &info) != 0 || ::fstat(sandboxes, &place) != 0) return;
  const Disk disk = disk_of(info);
  const uint64_t free = ::geteuid() == 0 ? disk.free_for_root : disk.free;
  const std::lock_guard lock(reserve.mutex);
  if (free < kFull || info.f_favail == 0) {
    if (reserve.device == place.st_dev) reserve.file.reset();
  } else if (disk.free > disk.low_water() + disk.reserve()) {
    if (reserve.file && reserve.device == place.st_dev) return;
    reserve.file = reserved_file(sandboxes, disk.reserve());
    reserve.device = place.st_dev;
  }
}

}  // namespace isogate
