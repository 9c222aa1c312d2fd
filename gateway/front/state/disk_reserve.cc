#include "gateway/front/state/disk_reserve.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>

namespace isogate::front {
namespace {

constexpr uint64_t kReserve = 8 << 20;
constexpr uint64_t kShare = 8;

Fd open_to_reserve(const std::string& path) {
  return Fd(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
}

}  // namespace

void DiskReserve::open(const std::string& database) {
  struct statvfs info {};
  files_ = {open_to_reserve(database), open_to_reserve(database + "-wal")};
  if (files_[0] && ::fstatvfs(files_[0].get(), &info) == 0)
    bytes_ = std::min<uint64_t>(kReserve, info.f_blocks * info.f_frsize / kShare);
  top_up();
}

// The database grows at its end, its log is written again from its start.
void DiskReserve::top_up() {
  struct stat info {};
  if (bytes_ == 0) return;
  if (files_[0] && ::fstat(files_[0].get(), &info) == 0)
    (void)!::fallocate(files_[0].get(), FALLOC_FL_KEEP_SIZE, info.st_size, static_cast<off_t>(bytes_));
  if (files_[1]) (void)!::fallocate(files_[1].get(), FALLOC_FL_KEEP_SIZE, 0, static_cast<off_t>(bytes_));
}

}  // namespace isogate::front
