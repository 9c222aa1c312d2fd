#include "gateway/supervisor/accounts.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "gateway/base/privileges.h"

namespace isogate::supervisor {
namespace {

struct Ids {
  uid_t uid;
  gid_t gid;
};

Result<Ids> find_user(const std::string& name, const std::string& purpose) {
  errno = 0;
  const passwd* entry = ::getpwnam(name.c_str());
  if (entry == nullptr && errno != 0) return os_error("cannot look up the user `" + name + "`", errno);
  if (entry == nullptr)
    return Error{ISOGATE_NOT_FOUND, 0,
                 "there is no user `" + name + "`, " + purpose +
                     "; make it with scripts/install-deps.sh or: " +
                     "useradd --system --no-create-home --shell /usr/sbin/nologin " + name};
  if (entry->pw_uid == 0) return invalid("the user `" + name + "`, " + purpose + ", must not be uid 0");
  return Ids{entry->pw_uid, entry->pw_gid};
}

Result<void> find_group(const std::string& name, const std::string& backend) {
  errno = 0;
  if (::getgrnam(name.c_str()) != nullptr) return {};
  if (errno != 0 && errno != ENOENT) return os_error("cannot look up the group `" + name + "`", errno);
  return Error{ISOGATE_NOT_FOUND, 0,
               "there is no group `" + name + "`, one of the groups of backend `" + backend +
                   "`; make it with: groupadd --system " + name};
}

}  // namespace

Result<Accounts> find_accounts(const Config& config) {
  if (!started_by_root()) return Accounts{false, ::geteuid(), ::getegid()};
  auto front = find_user("isogate", "which the front becomes when root starts the gateway");
  if (!front) return front.error();
  auto host = find_user("isogate-host", "which backend hosts become that need no root");
  if (!host) return host.error();
  for (const BackendConfig& backend : config.backends) {
    for (const std::string& group : backend.groups)
      if (auto found = find_group(group, backend.name); !found) return found.error();
    if (backend.run_as.empty()) continue;
    auto user = find_user(backend.run_as, "the run_as of backend `" + backend.name + "`");
    if (!user) return user.error();
  }
  return Accounts{true, front->uid, front->gid};
}

}  // namespace isogate::supervisor
