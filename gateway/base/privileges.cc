#include "gateway/base/privileges.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string_view>

#include "gateway/base/privileges_steps.h"
#include "gateway/base/process_status.h"

namespace isogate {
namespace {

using namespace privileges;

struct Account {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // sorted, without repetition
};

Error refused(std::string message) { return {ISOGATE_PERMISSION_DENIED, 0, std::move(message)}; }

Result<gid_t> find_group(const std::string& name) {
  gid_t number = 0;
  const auto end = std::from_chars(name.data(), name.data() + name.size(), number);
  if (!name.empty() && end.ec == std::errc() && end.ptr == name.data() + name.size()) return number;
  errno = 0;
  const group* entry = ::getgrnam(name.c_str());
  if (entry != nullptr) return entry->gr_gid;
  if (errno != 0) return os_error("cannot look up group `" + name + "`", errno);
  return Error{ISOGATE_NOT_FOUND, 0,
               "there is no group `" + name + "`; make it with: groupadd --system " + name};
}

Result<Account> find_account(const std::string& user, const std::vector<std::string>& groups) {
  errno = 0;
  const passwd* entry = ::getpwnam(user.c_str());
  if (entry == nullptr && errno != 0) return os_error("cannot look up user `" + user + "`", errno);
  if (entry == nullptr)
    return Error{ISOGATE_NOT_FOUND, 0,
                 "there is no user `" + user +
                     "`; make it with: useradd --system --no-create-home --shell "
                     "/usr/sbin/nologin " +
                     user};
  Account account{entry->pw_uid, entry->pw_gid, {}};
  int count = 64;
  account.groups.resize(static_cast<size_t>(count));
  while (::getgrouplist(user.c_str(), account.gid, account.groups.data(), &count) < 0)
    account.groups.resize(static_cast<size_t>(count));
  account.groups.resize(static_cast<size_t>(count));
  for (const std::string& name : groups) {
    auto gid = find_group(name);
    if (!gid) return gid.error();
    account.groups.push_back(*gid);
  }
  std::sort(account.groups.begin(), account.groups.end());
  account.groups.erase(std::unique(account.groups.begin(), account.groups.end()), account.groups.end());
  return account;
}

bool all_are(const std::array<uint32_t, 4>& ids, uint32_t id) {
  return std::all_of(ids.begin(), ids.end(), [id](uint32_t each) { return each == id; });
}

Result<void> verify_account(const Account& account) {
  auto status = read_process_status();
  if (!status) return status.error();
  if (!all_are(status->uids, account.uid) || !all_are(status->gids, account.gid) ||
      status->groups != std::vector<uint32_t>(account.groups.begin(), account.groups.end()))
    return Error{ISOGATE_INTERNAL, 0, "the process did not become uid " + std::to_string(account.uid)};
  if (status->bounding != 0)
    return Error{ISOGATE_INTERNAL, 0, "the bounding set of capabilities is not empty"};
  return verify_powerless();
}

// Runs the steps up to the first that fails.
template <typename... Steps>
Result<void> in_order(Steps... steps) {
  Result<void> result;
  (void)((result = steps(), result.ok()) && ...);
  return result;
}

}  // namespace

bool started_by_root() { return ::geteuid() == 0; }

Result<void> become_user(const std::string& user, const std::vector<std::string>& groups) {
  if (!started_by_root())
    return refused("cannot become user `" + user + "`: this process runs as uid " +
                   std::to_string(::geteuid()) + ", and only root may change users");
  auto account = find_account(user, groups);
  if (!account) return account.error();
  if (account->uid == 0) return refused("cannot drop privileges by becoming `" + user + "`: that is uid 0");
  return in_order(
      require_single_thread, [] { return reduce_bounding_set(0); }, clear_ambient_set, lock_securebits,
      [&] { return set_ids(account->uid, account->gid, account->groups); },
      [] { return set_capabilities(0); }, forbid_new_privileges, forbid_dumps,
      [&] { return verify_account(*account); });
}

Result<void> stay_same_user() {
  if (started_by_root()) return refused("cannot drop privileges and stay uid 0; become a user instead");
  // Without CAP_SETPCAP the bounding set stays: no_new_privs makes it unreachable.
  return in_order(
      require_single_thread, clear_ambient_set, [] { return set_capabilities(0); }, forbid_new_privileges,
      forbid_dumps, verify_powerless);
}

Result<void> keep_capabilities(uint64_t linux_capabilities) {
  if (!started_by_root()) return refused("cannot keep root's capabilities: this process is not root");
  auto before = read_process_status();
  if (!before) return before.error();
  const uint64_t kept = before->permitted & linux_capabilities;
  auto dropped = in_order(
      require_single_thread, [&] { return reduce_bounding_set(linux_capabilities); }, clear_ambient_set,
      [&] { return set_capabilities(kept); }, forbid_new_privileges, forbid_dumps);
  if (!dropped) return dropped;
  auto now = read_process_status();
  if (!now) return now.error();
  if (now->permitted != kept || now->effective != kept || now->inheritable != 0 || now->ambient != 0 ||
      now->bounding != (before->bounding & linux_capabilities) || !now->no_new_privs)
    return Error{ISOGATE_INTERNAL, 0, "the capabilities were reduced, but the kernel reports others"};
  return {};
}

Result<void> check_loader_environment() {
  for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (!text.starts_with("LD_")) continue;
    const std::string name(text.substr(0, text.find('=')));
    return refused("refusing to start with " + name + " in the environment: it decides which code this " +
                   "program loads. Start it with: env -u " + name + " isogate …");
  }
  return {};
}

}  // namespace isogate
