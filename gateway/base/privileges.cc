#include "gateway/base/privileges.h"

#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gateway/base/front_filter.h"
#include "gateway/base/lookup.h"
#include "gateway/base/process_status.h"
#include "lib/error.h"

namespace isogate {
namespace {

// The steps that the functions below put in order. Each returns the kernel's result.

#if defined(__SANITIZE_THREAD__)
constexpr bool kHelperThread = true;  // ThreadSanitizer runs one of its own
#else
constexpr bool kHelperThread = false;
#endif

std::string hex_mask(uint64_t mask) {
  std::array<char, 16> digits{};
  const auto end = std::to_chars(digits.begin(), digits.end(), mask, 16).ptr;
  return "0x" + std::string(digits.begin(), end);
}

Error still_has(const std::string& what) {
  return {ISOGATE_INTERNAL, 0, "privileges were dropped, but the process still has " + what};
}

// A credential is per thread: giving one up in one thread leaves it in the others.
Result<void> require_single_thread() {
  auto status = read_process_status();
  if (!status) return status.error();
  if (status->threads != 1 && !kHelperThread)
    return Error{ISOGATE_INTERNAL, 0,
                 "cannot drop privileges: " + std::to_string(status->threads) +
                     " threads run already, and each has its own privileges"};
  return {};
}

Result<void> reduce_bounding_set(uint64_t keep) {
  for (int cap = 0; cap < 64; ++cap) {
    const int present = ::prctl(PR_CAPBSET_READ, cap, 0, 0, 0);
    if (present < 0) break;  // EINVAL: beyond the last capability of this kernel
    if (present == 0 || (keep >> cap & 1) != 0) continue;
    if (::prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) != 0)
      return os_error("cannot drop capability " + std::to_string(cap) + " from the bounding set", errno);
  }
  return {};
}

Result<void> clear_ambient_set() {
  if (::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) != 0)
    return os_error("cannot clear the ambient capabilities", errno);
  return {};
}

// Sets permitted and effective to `keep`, inheritable to nothing.
Result<void> set_capabilities(uint64_t keep) {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2]{};
  for (int half = 0; half < 2; ++half)
    data[half].effective = data[half].permitted = static_cast<uint32_t>(keep >> (32 * half));
  if (::syscall(SYS_capset, &header, data) != 0)
    return os_error("cannot set the capabilities to " + hex_mask(keep), errno);
  return {};
}

// uid 0 means nothing any more, and none of it can be taken back. Left out, with no error, without
// CAP_SETPCAP.
Result<void> lock_securebits() {
  const unsigned long bits = SECBIT_NOROOT | SECBIT_NOROOT_LOCKED | SECBIT_NO_SETUID_FIXUP_LOCKED |
                             SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                             SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED;
  if (::prctl(PR_SET_SECUREBITS, bits, 0, 0, 0) != 0 && errno != EPERM)
    return os_error("cannot lock the securebits", errno);
  return {};
}

Result<void> forbid_new_privileges() {
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return os_error("cannot set no_new_privs", errno);
  return {};
}

Result<void> forbid_dumps() {
  if (::prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0) return os_error("cannot make the process undumpable", errno);
  return {};
}

Result<void> set_ids(uid_t uid, gid_t gid, const std::vector<gid_t>& groups) {
  if (::setgroups(groups.size(), groups.data()) != 0)
    return os_error("cannot set the supplementary groups", errno);
  if (::setresgid(gid, gid, gid) != 0) return os_error("cannot become gid " + std::to_string(gid), errno);
  if (::setresuid(uid, uid, uid) != 0) return os_error("cannot become uid " + std::to_string(uid), errno);
  return {};
}

// No capability in any of the five sets, no_new_privs, not dumpable, and no way back to uid 0.
Result<void> verify_powerless() {
  auto status = read_process_status();
  if (!status) return status.error();
  const uint64_t all = status->inheritable | status->permitted | status->effective | status->ambient;
  if (all != 0) return still_has("capabilities " + hex_mask(all));
  if (!status->no_new_privs) return still_has("no no_new_privs");
  if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) return still_has("the right to be dumped");
  if (::setresuid(static_cast<uid_t>(-1), 0, static_cast<uid_t>(-1)) == 0) return still_has("a way to uid 0");
  return {};
}

struct Account {
  uid_t uid = 0;
  gid_t gid = 0;
  std::vector<gid_t> groups;  // sorted, without repetition
};

Result<gid_t> find_group(const std::string& name) {
  const auto found = look_up_group(name);
  if (!found) return found.error();
  if (*found) return **found;
  return Error{ISOGATE_NOT_FOUND, 0, "there is no group `" + name + "`"};
}

Result<Account> find_account(const std::string& user, const std::vector<std::string>& groups) {
  const auto found = look_up_user(user);
  if (!found) return found.error();
  if (!*found) return Error{ISOGATE_NOT_FOUND, 0, "there is no user `" + user + "`"};
  Account account{(*found)->uid, (*found)->gid, {}};
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
    return denied("cannot become user `" + user + "`: this process runs as uid " +
                  std::to_string(::geteuid()) + ", and only root may change users");
  auto account = find_account(user, groups);
  if (!account) return account.error();
  if (account->uid == 0) return denied("cannot drop privileges by becoming `" + user + "`: that is uid 0");
  return in_order(
      require_single_thread, [] { return reduce_bounding_set(0); }, clear_ambient_set, lock_securebits,
      [&] { return set_ids(account->uid, account->gid, account->groups); },
      [] { return set_capabilities(0); }, forbid_new_privileges, forbid_dumps,
      [&] { return verify_account(*account); });
}

Result<void> stay_same_user() {
  if (started_by_root()) return denied("cannot drop privileges and stay uid 0; become a user instead");
  // Without CAP_SETPCAP the bounding set stays: no_new_privs makes it unreachable.
  return in_order(
      require_single_thread, clear_ambient_set, [] { return set_capabilities(0); }, forbid_new_privileges,
      forbid_dumps, verify_powerless);
}

Result<void> keep_capabilities(uint64_t linux_capabilities) {
  if (!started_by_root()) return denied("cannot keep root's capabilities: this process is not root");
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
    return denied("refusing to start with " + name + " in the environment: it decides which code this " +
                  "program loads. Start it with: env -u " + name + " isogate …");
  }
  return {};
}

namespace {

constexpr uid_t kNobody = 65534;

// Beyond the front's rules. A network namespace does not keep Unix sockets of the file system away.
constexpr FilterRule kNoSockets[] = {
    {"socket", FilterAction::kRefuse, "no network, no Engine, no bus"},
    {"socketpair", FilterAction::kRefuse, "nobody to talk to"},
};

struct Limit {
  int resource;
  const char* name;
  rlim_t soft, hard;
};

constexpr Limit kLimits[] = {
    {RLIMIT_CORE, "RLIMIT_CORE", 0, 0},
    {RLIMIT_CPU, "RLIMIT_CPU", 5, 6},
    {RLIMIT_FSIZE, "RLIMIT_FSIZE", 0, 0},
    {RLIMIT_MEMLOCK, "RLIMIT_MEMLOCK", 0, 0},
    {RLIMIT_NOFILE, "RLIMIT_NOFILE", 256, 256},
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their shadow memory is terabytes
    {RLIMIT_AS, "RLIMIT_AS", rlim_t{4} << 30, rlim_t{4} << 30},
#endif
};

Result<void> set_limits() {
  for (const Limit& limit : kLimits) {
    rlimit now{};
    if (::getrlimit(limit.resource, &now) != 0)
      return os_error(std::string("cannot read ") + limit.name, errno);
    const rlimit wanted{std::min(limit.soft, now.rlim_max), std::min(limit.hard, now.rlim_max)};
    if (::setrlimit(limit.resource, &wanted) != 0)
      return os_error(std::string("cannot set ") + limit.name, errno);
  }
  return {};
}

// Where neither may be made, the filter alone stands in the way. In a user namespace root could not become
// nobody.
void leave_network(bool root) {
  if (::unshare(CLONE_NEWNET) != 0 && !root) (void)::unshare(CLONE_NEWUSER | CLONE_NEWNET);
}

Result<void> verify_no_network() {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  ::close(fd);
  return Error{ISOGATE_INTERNAL, 0, "the quarantine still has a network"};
}

}  // namespace

Result<void> enter_quarantine() {
  if (auto alone = require_single_thread(); !alone) return alone;
  const bool root = started_by_root();
  leave_network(root);
  // Without uid 0 and without a user namespace this may fail; no_new_privs then makes the set unreachable.
  if (auto reduced = reduce_bounding_set(0); !reduced && root) return reduced;
  auto dropped = in_order(
      clear_ambient_set, lock_securebits,
      [root] { return root ? set_ids(kNobody, kNobody, {}) : Result<void>(); }, set_limits,
      [] { return set_capabilities(0); }, forbid_new_privileges, forbid_dumps);
  if (!dropped) return dropped;
  std::vector<FilterRule> rules(front_filter_rules().begin(), front_filter_rules().end());
  std::erase_if(rules, [](const FilterRule& rule) {
    return std::string_view(rule.system_call) == "socket" ||
           std::string_view(rule.system_call) == "rt_sigaction";
  });
  rules.insert(rules.end(), std::begin(kNoSockets), std::end(kNoSockets));
  if (auto filtered = install_filter(rules); !filtered) return filtered;
  if (auto verified = verify_no_network(); !verified) return verified;
  return verify_powerless();
}

}  // namespace isogate
