#include "gateway/supervisor/accounts.h"

#include <unistd.h>

#include <string>

#include "gateway/base/lookup.h"
#include "gateway/base/privileges.h"

namespace isogate::supervisor {
namespace {

Result<UserIds> find_user(const std::string& name, const std::string& purpose) {
  const auto found = look_up_user(name);
  if (!found) return found.error();
  if (!*found)
    return Error{ISOGATE_NOT_FOUND, 0,
                 "there is no user `" + name + "`, " + purpose +
                     "; make it with scripts/install-deps.sh or: " +
                     "useradd --system --no-create-home --shell /usr/sbin/nologin " + name};
  if ((*found)->uid == 0) return invalid("the user `" + name + "`, " + purpose + ", must not be uid 0");
  return **found;
}

Result<void> find_group(const std::string& name, const std::string& backend) {
  const auto found = look_up_group(name);
  if (!found) return found.error();
  if (*found) return {};
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
