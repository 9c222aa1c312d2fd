#include "runner/uid/uid_claims.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "lib/fd.h"

namespace isogate {
namespace {

constexpr const char* kAttempt = "cannot see which uids other gateways of this host have";
// With 5 ms between: flock(2) takes no deadline, and a holder may be stopped for some seconds.
constexpr int kMostTries = 2000;

// Locked; empty: there are no claims here.
Result<Fd> open_locked(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    if (errno == EACCES || errno == EPERM || errno == EROFS || errno == ENOENT) return Fd();
    return os_error(kAttempt, errno);
  }
  Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!directory && errno == EACCES) return Fd();
  struct stat info {};
  if (!directory || ::fstat(directory.get(), &info) != 0) return os_error(kAttempt, errno);
  if (info.st_uid != ::geteuid() || (info.st_mode & 022) != 0) return os_error(kAttempt, EPERM);
  for (int tries = 0; ::flock(directory.get(), LOCK_EX | LOCK_NB) != 0; ++tries) {
    if ((errno != EWOULDBLOCK && errno != EINTR) || tries == kMostTries) return os_error(kAttempt, errno);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return directory;
}

Result<std::optional<std::string>> holder_of(int directory, const std::string& name) {
  auto target = read_link(directory, name, kAttempt);
  if (target) return std::optional(std::move(*target));
  if (target.error().os_errno == ENOENT) return std::optional<std::string>();
  return target.error();
}

bool is_gone(const std::string& entry) {
  struct stat info {};
  return ::lstat(entry.c_str(), &info) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

}  // namespace

UidClaims::UidClaims(std::string directory, std::string uids_dir)
    : directory_(std::move(directory)), uids_dir_(std::move(uids_dir)) {}

Result<bool> UidClaims::claim(uint32_t uid) const {
  const std::string name = std::to_string(uid), own = uids_dir_ + "/" + name;
  const auto directory = open_locked(directory_);
  if (!directory) return directory.error();
  if (!*directory) return true;
  const auto holder = holder_of(directory->get(), name);
  if (!holder) return holder.error();
  if (*holder == own) return true;
  if (*holder && !is_gone(**holder)) return false;
  if (*holder && ::unlinkat(directory->get(), name.c_str(), 0) != 0) return os_error(kAttempt, errno);
  if (::symlinkat(own.c_str(), directory->get(), name.c_str()) != 0) return os_error(kAttempt, errno);
  return true;
}

std::string UidClaims::other_holder(uint32_t uid) const {
  const std::string name = std::to_string(uid);
  const auto directory = open_locked(directory_);
  if (!directory || !*directory) return {};
  const auto holder = holder_of(directory->get(), name);
  return holder && *holder && **holder != uids_dir_ + "/" + name ? **holder : "";
}

void UidClaims::withdraw(uint32_t uid) const {
  const std::string name = std::to_string(uid);
  const auto directory = open_locked(directory_);
  if (!directory || !*directory) return;
  const auto holder = holder_of(directory->get(), name);
  if (holder && *holder == uids_dir_ + "/" + name) ::unlinkat(directory->get(), name.c_str(), 0);
}

}  // namespace isogate
