#include "gateway/base/lookup.h"

#include <grp.h>
#include <pwd.h>

#include <cerrno>

namespace isogate {
namespace {

// Modules of the name service report an absent name in several ways.
bool means_absent(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

}  // namespace

Result<std::optional<UserIds>> look_up_user(const std::string& name) {
  errno = 0;
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry != nullptr) return std::optional(UserIds{entry->pw_uid, entry->pw_gid});
  if (means_absent(errno)) return std::optional<UserIds>();
  return os_error("cannot look up the user `" + name + "`", errno);
}

Result<std::optional<gid_t>> look_up_group(const std::string& name) {
  errno = 0;
  const group* entry = ::getgrnam(name.c_str());
  if (entry != nullptr) return std::optional(entry->gr_gid);
  if (means_absent(errno)) return std::optional<gid_t>();
  return os_error("cannot look up the group `" + name + "`", errno);
}

}  // namespace isogate
