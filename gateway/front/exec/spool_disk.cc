#include "gateway/front/exec/spool_disk.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace isogate::front {
namespace {

constexpr const char* kName = "output.tmp";

Result<Fd> make_file(int directory) {
  ::unlinkat(directory, kName, 0);  // of a gateway that was killed here
  Fd file(::openat(directory, kName, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return os_error("cannot make a file for output", errno);
  if (::unlinkat(directory, kName, 0) != 0) return os_error("cannot remove a file's name", errno);
  return file;
}

}  // namespace

Result<void> SpoolFile::write(int directory, uint64_t offset, std::string_view bytes) {
  if (!file_) {
    auto made = make_file(directory);
    if (!made) return made.error();
    file_ = std::move(*made);
    base_ = dropped_ = end_ = offset;
  }
  struct statvfs disk {};
  if (::fstatvfs(file_.get(), &disk) != 0) return os_error("cannot look at the disk", errno);
  if (disk.f_bavail * disk.f_frsize < kLeftFree + bytes.size())
    return os_error("cannot write output to the disk", ENOSPC);
  while (!bytes.empty()) {
    const uint64_t place = place_of(offset);
    const auto n = ::pwrite(file_.get(), bytes.data(), std::min<uint64_t>(bytes.size(), size_ - place),
                            static_cast<off_t>(place));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return os_error("cannot write output to the disk", errno);
    offset += static_cast<uint64_t>(n);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  end_ = offset;
  return {};
}

Result<void> SpoolFile::drop_before(uint64_t offset, uint64_t at_least) {
  const auto whole = [this](uint64_t of) { return base_ + (of - base_) / kDropStep * kDropStep; };
  if (end_ - dropped_ > size_) dropped_ = whole(end_ - size_ + kDropStep - 1);  // overwritten
  const uint64_t until = whole(std::max(offset, base_));
  if (until < dropped_ + at_least + kDropStep) return {};
  while (dropped_ < until) {
    const uint64_t place = place_of(dropped_), size = std::min(until - dropped_, size_ - place);
    if (::fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(place),
                    static_cast<off_t>(size)) != 0)
      return os_error("cannot give the disk of older output back", errno);
    dropped_ += size;
  }
  return {};
}

Result<std::string> SpoolFile::read(uint64_t offset, size_t bytes) const {
  std::string read(bytes, '\0');
  for (size_t done = 0; done < bytes;) {
    const uint64_t place = place_of(offset + done);
    const auto n = ::pread(file_.get(), read.data() + done, std::min<uint64_t>(bytes - done, size_ - place),
                           static_cast<off_t>(place));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error("cannot read output from the disk", errno);
    if (n == 0) return os_error("output on the disk is cut", EIO);
    done += static_cast<size_t>(n);
  }
  return read;
}

std::optional<uint64_t> SpoolDisk::free_bytes() const {
  struct statvfs disk {};
  if (::fstatvfs(directory.get(), &disk) != 0) return std::nullopt;
  return disk.f_bavail * disk.f_frsize;
}

}  // namespace isogate::front
